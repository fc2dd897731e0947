//! Extensions: those that the card has and the caller names are active and echoed; required ones must be named.

use talaria_a2a::{Config, Extension};
use talaria_turns::Limits;

use crate::kit::Host;
use crate::wire::{ALL, Ask};

fn two(required: bool) -> impl FnOnce(&mut Config) {
    move |config| {
        config.card.extended_card = true;
        config.card.extensions = vec![
            Extension { uri: "urn:one".into(), required, description: None },
            Extension { uri: "urn:two".into(), required: false, description: None },
        ];
    }
}

#[tokio::test]
async fn active_extensions_are_echoed_in_the_header_of_the_version() {
    let host = Host::with(two(false), Limits::default()).await;
    for wire in ALL {
        let (echo, other) = match wire.is_old() {
            true => ("x-a2a-extensions", "a2a-extensions"),
            false => ("a2a-extensions", "x-a2a-extensions"),
        };
        for (named, active) in [
            ("urn:two, urn:none", Some("urn:two")),
            ("urn:two,urn:one", Some("urn:one, urn:two")),
            ("urn:none", None),
            ("", None),
        ] {
            for header in ["A2A-Extensions", "X-A2A-Extensions"] {
                let answer = wire.ask_as(&host, &[(header, named)], &Ask::Send(wire.params("hi"))).await;
                assert_eq!(answer.status, 200);
                assert_eq!((answer.header(echo), answer.header(other)), (active, None), "{wire:?} {named:?}");
            }
        }
        let stream =
            wire.open(&host, &[("A2A-Extensions", "urn:one")], &Ask::Stream(wire.params("hi"))).await;
        assert_eq!(stream.ok().unwrap().head.header(echo), Some("urn:one"), "{wire:?}");
    }
}

#[tokio::test]
async fn every_request_must_name_a_required_extension() {
    let host = Host::with(two(true), Limits::default()).await;
    for wire in ALL {
        for ask in [
            Ask::Send(wire.params("hi")),
            Ask::Stream(wire.params("hi")),
            Ask::Get("t"),
            Ask::Cancel("t"),
            Ask::Subscribe("t"),
            Ask::Card,
        ] {
            let answer = wire.ask_as(&host, &[("A2A-Extensions", "urn:two")], &ask).await;
            let (status, code, reason, _) = wire.error(&answer);
            assert_eq!(reason, "EXTENSION_SUPPORT_REQUIRED", "{wire:?} {ask:?}");
            assert_eq!((status, code), if wire.is_rest() { (400, 400) } else { (200, -32008) }, "{wire:?}");
            assert!(answer.json()["error"]["message"].as_str().unwrap().contains("urn:one"));
        }
    }
    assert_eq!(host.made(), 0);
    for wire in ALL {
        let answer =
            wire.ask_as(&host, &[("A2A-Extensions", "urn:one")], &Ask::Send(wire.params("hi"))).await;
        assert_eq!(answer.status, 200, "{wire:?}");
    }
    assert_eq!(host.made(), 4);
}
