//! The card: one document for both versions, cheap to ask for again.

use secrecy::SecretString;
use serde_json::Value;
use talaria_a2a::{CardConfig, Config, Provider, Skill, Token};
use talaria_turns::Limits;

use crate::kit::Host;

const PATH: &str = "/.well-known/agent-card.json";

fn full(config: &mut Config) {
    config.url = "https://agents.example/desk".into();
    config.tokens = vec![Token::new("platform", SecretString::from("s3cret")).unwrap()];
    config.card = CardConfig {
        name: "Research desk".into(),
        description: "Answers questions about our papers".into(),
        version: "2.1.0".into(),
        provider: Some(Provider { organization: "ACME".into(), url: "https://acme.example".into() }),
        documentation_url: Some("https://acme.example/desk".into()),
        icon_url: Some("https://acme.example/desk.png".into()),
        default_input_modes: vec!["text/plain".into(), "application/json".into()],
        default_output_modes: vec!["text/markdown".into()],
        skills: vec![Skill {
            id: "search".into(),
            name: "Search".into(),
            description: "Finds a paper".into(),
            tags: vec!["papers".into()],
            examples: vec!["find the one about bridges".into()],
            input_modes: vec!["text/plain".into()],
            output_modes: Vec::new(),
        }],
    };
}

#[tokio::test]
async fn it_speaks_to_both_versions() {
    let open = Host::with(
        |config| {
            config.url = "http://127.0.0.1:8000".into();
            // The default is our own, which changes with every release.
            config.card.version = "1.2.3".into();
        },
        Limits::default(),
    )
    .await;
    let card = open.request("GET", PATH, &[], b"").await;
    insta::assert_json_snapshot!("open", card.json());
    let secured = Host::with(full, Limits::default()).await;
    let card = secured.request("GET", PATH, &[], b"").await;
    assert_eq!(card.status, 200, "the card is public");
    insta::assert_json_snapshot!("full", card.json());
    assert!(!card.json().to_string().contains("s3cret"));
    let read: a2a::AgentCard = serde_json::from_value(card.json()).unwrap();
    assert_eq!(read.supported_interfaces.len(), 2);
}

#[tokio::test]
async fn it_is_where_old_and_new_clients_look_and_is_cached() {
    let host = Host::start().await;
    let card = host.request("GET", PATH, &[], b"").await;
    let old = host.request("GET", "/.well-known/agent.json", &[], b"").await;
    assert_eq!(card.body, old.body);
    for header in ["etag", "last-modified", "cache-control", "vary", "content-type", "content-length"] {
        assert!(card.header(header).is_some(), "{header}: {card:?}");
        assert_eq!(card.header(header), old.header(header), "{header}");
    }
    assert_eq!(card.header("vary"), Some("A2A-Version"));
    assert_eq!(card.header("cache-control"), Some("max-age=60"));

    let head = host.request("HEAD", PATH, &[], b"").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), card.header("content-length"));
    assert_eq!(head.header("etag"), card.header("etag"));
}

#[tokio::test]
async fn who_has_it_is_not_sent_it_again() {
    let host = Host::start().await;
    let etag = host.request("GET", PATH, &[], b"").await.header("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    let list = format!("\"other\", {etag}");
    for known in [&etag, &weak, &list, "*"] {
        let answer = host.request("GET", PATH, &[("if-none-match", known)], b"").await;
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{known}");
        assert_eq!(answer.header("etag"), Some(&*etag));
    }
    let answer = host.request("GET", PATH, &[("if-none-match", "\"other\"")], b"").await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.json()["capabilities"].as_object().unwrap().values().all(|flag| *flag == Value::Bool(false))
    );
}
