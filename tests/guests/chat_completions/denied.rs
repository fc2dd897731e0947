//! Calls that the grant does not include are denied.

use talaria_rig::Rig;
use talaria_turns::FailureKind;

use super::{KEY, polite, rig};

const DENIED: &str = "[hermes-agent unreachable] the operator's policy does not allow it";

#[tokio::test]
async fn a_call_without_a_grant_never_reaches_the_gateway() {
    let gateway = polite().await;
    let base = gateway.base_url();
    let others = [
        vec![],
        vec![format!("GET {base}/chat/completions")],
        vec![format!("POST {base}/other")],
        vec!["POST http://127.0.0.1:1/v1/chat/completions".into()],
        vec!["POST http://localhost:*/*".into()],
        vec!["POST https://127.0.0.1:*/*".into()],
    ];
    for grant in others {
        let rig = rig(&gateway).await.grant(grant.iter().map(String::as_str));
        for ran in [rig.run("hello").await, rig.stream("hello").await] {
            let failure = ran.failure();
            assert_eq!(failure.message, DENIED, "with {grant:?}");
            assert_eq!((failure.kind, failure.retryable), (FailureKind::Denied, false));
        }
    }
    assert_eq!((gateway.requests().len(), gateway.connections()), (0, 0));
}

#[tokio::test]
async fn a_setting_cannot_widen_the_grant() {
    let granted = polite().await;
    let other = polite().await;
    let grant = format!("POST {}/chat/completions", granted.base_url());
    let rig =
        Rig::new("chat-completions").await.setting("base_url", other.base_url()).grant([grant.as_str()]);
    assert_eq!(rig.run("hello").await.failure().message, DENIED);
    assert_eq!((granted.requests().len(), other.connections()), (0, 0));
}

#[tokio::test]
async fn the_key_does_not_appear_in_a_denial() {
    let gateway = polite().await;
    let key = "k-0123456789abcdef";
    let ran = rig(&gateway).await.grant([]).secret(KEY, key).run("hello").await;
    assert!(!format!("{ran:?}").contains(key));
}
