//! CORS: pages from configured origins may call, and other pages are refused without CORS headers.

use talaria_turns::Limits;

use crate::kit::Host;
use crate::wire::{ALL, Ask, Wire};

const PAGE: (&str, &str) = ("origin", "https://app.example");
const ASKS: (&str, &str) = ("access-control-request-method", "POST");

async fn host() -> Host {
    Host::with(|config| config.cors = vec!["https://app.example".parse().unwrap()], Limits::default()).await
}

#[tokio::test]
async fn a_page_from_a_configured_origin_may_call() {
    let host = host().await;
    for path in ["/", "/message:stream", "/v1/message:send", "/.well-known/agent-card.json"] {
        let answer = host.request("OPTIONS", path, &[PAGE, ASKS], b"").await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        for (name, word) in [
            ("methods", "POST"),
            ("methods", "DELETE"),
            ("headers", "Authorization"),
            ("headers", "A2A-Version"),
        ] {
            let allowed = answer.header(&format!("access-control-allow-{name}")).unwrap();
            assert!(allowed.contains(word), "{path}: {allowed}");
        }
    }
    for wire in ALL {
        let answer = wire.ask_as(&host, &[PAGE], &Ask::Send(wire.params("hi"))).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"), "{wire:?}");
        assert!(answer.header("access-control-expose-headers").unwrap().contains("A2A-Version"), "{wire:?}");
        assert!(answer.head.contains("vary: Origin"), "{answer:?}");
        let stream = wire.open(&host, &[PAGE], &Ask::Stream(wire.params("hi"))).await.ok().unwrap();
        assert_eq!(
            stream.head.header("access-control-allow-origin"),
            Some("https://app.example"),
            "{wire:?}"
        );
    }
    let unknown = host.request("OPTIONS", "/nothing", &[PAGE, ASKS], b"").await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn any_other_page_is_refused_without_cors_headers() {
    let none = Host::start().await;
    for (host, origin) in [
        (&host().await, "https://evil.example"),
        (&host().await, "https://app.example.evil"),
        (&host().await, "http://app.example"),
        (&host().await, "null"),
        (&none, "https://app.example"),
    ] {
        let page = ("origin", origin);
        let asked = host.request("OPTIONS", "/", &[page, ASKS], b"").await;
        assert_eq!((asked.status, asked.header("access-control-allow-origin")), (403, None), "{origin}");
        let sent = Wire::Rpc.ask_as(host, &[page], &Ask::Send(Wire::Rpc.params("hi"))).await;
        assert_eq!((sent.status, sent.header("access-control-allow-origin")), (403, None), "{origin}");
    }
    let plain = Wire::Rpc.ask(&none, &Ask::Send(Wire::Rpc.params("hi"))).await;
    assert!(
        !plain.head.contains("vary: Origin"),
        "answers do not depend on the origin unless one is configured"
    );
}
