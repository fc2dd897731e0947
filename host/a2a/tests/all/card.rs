//! The card: one address for both versions, cached by ETag.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use secrecy::SecretString;
use serde_json::Value;
use talaria_a2a::{CardConfig, CardSigner, Config, Extension, Provider, Skill, Token};
use talaria_turns::Limits;

use crate::kit::{Answer, Host};
use crate::wire::{ALL, Ask};

const PATH: &str = "/.well-known/agent-card.json";

fn skill(id: &str, description: &str) -> Skill {
    Skill {
        id: id.into(),
        name: id.into(),
        description: description.into(),
        tags: vec!["papers".into()],
        examples: Vec::new(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
    }
}

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
        streaming: true,
        push_notifications: false,
        extended_card: true,
        extended_skills: vec![skill("restart", "Restarts the desk")],
        extensions: vec![
            Extension {
                uri: "urn:acme:cite".into(),
                required: false,
                description: Some("Cites papers".into()),
            },
            Extension { uri: "urn:acme:sign".into(), required: true, description: None },
        ],
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
async fn the_card_serves_both_versions() {
    let open = Host::with(
        |config| {
            config.url = "http://127.0.0.1:8000".into();
            // The default is our own version, which changes with every release.
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
    let one = secured.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await;
    assert_ne!(one.header("etag"), card.header("etag"));
    for name in one.json().as_object().unwrap().keys() {
        if name != "securitySchemes" {
            assert_eq!(one.json()[name], card.json()[name], "{name}");
        }
    }
    for old in ["url", "protocolVersion", "security", "preferredTransport", "additionalInterfaces"] {
        assert!(one.json().get(old).is_none(), "the card of 1.0 has no fields of 0.3: {old}");
    }
    let read: a2a::AgentCard = serde_json::from_value(card.json()).unwrap();
    assert_eq!(read.supported_interfaces.len(), 4);
}

#[tokio::test]
async fn the_card_is_at_the_old_and_the_new_path_and_can_be_cached() {
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
async fn a_client_with_the_current_card_is_not_sent_it_again() {
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
}

#[tokio::test]
async fn the_extended_card_is_for_callers_with_a_token() {
    let host = Host::with(full, Limits::default()).await;
    let required = ("A2A-Extensions", "urn:acme:sign");
    for wire in ALL {
        let answer = wire.ask_as(&host, &[required], &Ask::Card).await;
        assert_eq!(answer.status, 401, "{wire:?}");
        let answer = wire.ask_as(&host, &[required, ("authorization", "Bearer s3cret")], &Ask::Card).await;
        let card = if wire.is_rest() { answer.json() } else { answer.json()["result"].clone() };
        let ids: Vec<_> = card["skills"].as_array().unwrap().iter().map(|skill| &skill["id"]).collect();
        assert_eq!(ids, ["search", "restart"], "{wire:?}");
        assert_eq!(card["name"], "Research desk");
        assert_eq!(card.get("url").is_some(), wire.is_old(), "{wire:?}");
    }
}

#[tokio::test]
async fn rejects_the_extended_card_if_the_card_does_not_offer_it() {
    let host = Host::start().await;
    for wire in ALL {
        let answer = wire.ask(&host, &Ask::Card).await;
        let (status, code, reason, _) = wire.error(&answer);
        assert_eq!(reason, "UNSUPPORTED_OPERATION", "{wire:?}");
        assert_eq!((status, code), if wire.is_rest() { (400, 400) } else { (200, -32004) }, "{wire:?}");
    }
}

fn signer() -> (CardSigner, Vec<u8>) {
    let key = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
    let public = Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap().public_key().as_ref().to_vec();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", STANDARD.encode(key));
    (CardSigner::from_pem(&SecretString::from(pem), "key-1", None).unwrap(), public)
}

/// Verifies the signature of a card and returns the card without it. Works only for a card without empty fields, to which the
/// rules about presence do not apply.
fn verified(answer: &Answer, public: &[u8]) -> Value {
    let mut card = answer.json();
    let signatures = card.as_object_mut().unwrap().remove("signatures").unwrap();
    let text = |name: &str| signatures[0][name].as_str().unwrap();
    let payload = serde_json_canonicalizer::to_vec(&card).unwrap();
    let input = format!("{}.{}", text("protected"), URL_SAFE_NO_PAD.encode(payload));
    let signature = URL_SAFE_NO_PAD.decode(text("signature")).unwrap();
    UnparsedPublicKey::new(&ED25519, public).verify(input.as_bytes(), &signature).unwrap();
    card
}

#[tokio::test]
async fn the_signature_of_a_card_is_valid_for_its_bytes() {
    let (signer, public) = signer();
    let sign = |config: &mut Config| {
        config.url = "http://127.0.0.1:8000".into();
        config.card_signer = Some(signer.clone());
    };
    let host = Host::with(sign, Limits::default()).await;
    let answer = host.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await;
    let card = verified(&answer, &public);

    let etag = answer.header("etag").unwrap();
    let known = host.request("GET", PATH, &[("A2A-Version", "1.0"), ("if-none-match", etag)], b"").await;
    assert_eq!(known.status, 304);
    let again = Host::with(sign, Limits::default()).await;
    let again = again.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await;
    assert_eq!((again.header("etag"), &again.body), (Some(etag), &answer.body), "the same after a restart");
    let unsigned = Host::with(|config| config.url = "http://127.0.0.1:8000".into(), Limits::default()).await;
    let unsigned = unsigned.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await;
    assert_ne!(unsigned.header("etag"), Some(etag));
    assert_eq!(unsigned.json(), card, "a signature changes nothing else, and is optional");
}

#[tokio::test]
async fn every_form_of_the_card_is_signed() {
    let (signer, _) = signer();
    let sign = |config: &mut Config| {
        full(config);
        config.card_signer = Some(signer);
    };
    let host = Host::with(sign, Limits::default()).await;
    let one = host.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await.json();
    let union = host.request("GET", PATH, &[], b"").await.json();
    assert_eq!(one["signatures"], union["signatures"], "the same card is signed in both");
    let headers = [("A2A-Extensions", "urn:acme:sign"), ("authorization", "Bearer s3cret")];
    let mut extended = Vec::new();
    for wire in ALL {
        let answer = wire.ask_as(&host, &headers, &Ask::Card).await;
        let card = if wire.is_rest() { answer.json() } else { answer.json()["result"].clone() };
        extended.push(card["signatures"].clone());
    }
    assert!(
        extended[0].is_array() && extended[0] != one["signatures"],
        "the extended card has its own signature"
    );
    assert!(extended.iter().all(|signatures| *signatures == extended[0]), "{extended:?}");
}

#[tokio::test]
async fn a_renewed_card_is_served_in_every_form_and_enforced() {
    let host = Host::with(full, Limits::default()).await;
    let headers = [("A2A-Extensions", "urn:acme:sign"), ("authorization", "Bearer s3cret")];
    let mut config = Config::new("");
    full(&mut config);
    let mut card = config.card;
    let before = host.request("GET", PATH, &[], b"").await;
    assert!(!host.card.renew(card.clone()), "the content is the same");
    let same = host.request("GET", PATH, &[], b"").await;
    assert_eq!((same.header("etag"), &same.body), (before.header("etag"), &before.body));

    card.skills.push(skill("cite", "Cites a paper"));
    card.default_output_modes.push("application/json".into());
    card.streaming = false;
    assert!(host.card.renew(card));
    for version in ["1.0", "0.3"] {
        let answer = host.request("GET", PATH, &[("A2A-Version", version)], b"").await;
        assert_eq!(answer.json()["skills"][1]["id"], "cite", "{version}");
        assert_eq!(answer.json()["capabilities"]["streaming"], false, "{version}");
        assert_ne!(answer.header("etag"), before.header("etag"), "{version}");
        assert_eq!(answer.json()["supportedInterfaces"], before.json()["supportedInterfaces"], "{version}");
        assert!(answer.json()["securitySchemes"].is_object(), "{version}");
    }
    let known = [("if-none-match", before.header("etag").unwrap())];
    assert_eq!(
        host.request("GET", PATH, &known, b"").await.status,
        200,
        "a client with the old card gets the new one"
    );
    for wire in ALL {
        let answer = wire.ask_as(&host, &headers, &Ask::Card).await;
        let card = if wire.is_rest() { answer.json() } else { answer.json()["result"].clone() };
        let ids: Vec<_> = card["skills"].as_array().unwrap().iter().map(|skill| &skill["id"]).collect();
        assert_eq!(ids, ["search", "cite", "restart"], "{wire:?}");
    }
    let of_tenant = [headers[0], headers[1], ("A2A-Version", "1.0")];
    let tenant = host.request("GET", "/acme/extendedAgentCard", &of_tenant, b"").await;
    assert_eq!(tenant.json()["skills"][1]["id"], "cite", "{tenant:?}");
    let message = serde_json::json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let rejected = host.call_as(&headers, "SendStreamingMessage", &message).await;
    assert!(rejected.json()["error"]["message"].as_str().unwrap().contains("no streams"), "{rejected:?}");
    let mut wants_json = message;
    wants_json["configuration"] = serde_json::json!({ "acceptedOutputModes": ["application/json"] });
    let answer = host.call_as(&headers, "SendMessage", &wants_json).await;
    assert!(answer.json().get("error").is_none(), "the card offers it now: {answer:?}");
}

#[tokio::test]
async fn a_renewed_card_has_a_new_signature() {
    let (signer, public) = signer();
    let host = Host::with(|config| config.card_signer = Some(signer), Limits::default()).await;
    let first = host.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await;
    let mut card = CardConfig::default();
    card.skills.push(skill("cite", "Cites a paper"));
    assert!(host.card.renew(card));
    let answer = host.request("GET", PATH, &[("A2A-Version", "1.0")], b"").await;
    assert_eq!(verified(&answer, &public)["skills"][1]["id"], "cite");
    assert_ne!(answer.json()["signatures"], first.json()["signatures"]);
    let union = host.request("GET", PATH, &[], b"").await;
    assert_eq!(union.json()["signatures"], answer.json()["signatures"]);
}

#[tokio::test]
async fn without_a_configured_address_the_card_names_the_one_of_the_request() {
    let change = |config: &mut Config| {
        config.url_follows = true;
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        config.tokens = vec![Token::new("a", SecretString::from("s3cret")).unwrap()];
        config.card.extended_card = true;
    };
    let host = Host::with(change, Limits::default()).await;
    let own = format!("http://{}", host.address);
    let card = async |lines: &str| {
        host.exchange(format!("GET {PATH} HTTP/1.1\r\n{lines}A2A-Version: 1.0\r\n\r\n").as_bytes()).await
    };
    for (lines, url) in [
        ("host: LOCALHOST:8000\r\n", "http://localhost:8000"),
        (
            "host: in:1\r\nx-forwarded-host: out.example\r\nx-forwarded-proto: https\r\n",
            "https://out.example",
        ),
        ("host: in:1\r\nforwarded: host=out.example;proto=https\r\n", "https://out.example"),
        ("host: a b\r\n", &own),
        ("host: user:secret@evil\r\n", &own),
        ("host: one\r\nhost: two\r\n", &own),
    ] {
        let answer = card(lines).await;
        if answer.status == 400 {
            continue;
        }
        let shown = answer.json();
        for interface in shown["supportedInterfaces"].as_array().unwrap() {
            if interface["protocolBinding"] == "GRPC" {
                let address = interface["url"].as_str().unwrap();
                assert!(url.contains(address.rsplit_once(':').unwrap().0), "{address} {lines:?}");
            } else {
                assert_eq!(interface["url"], url, "{lines:?}");
            }
        }
        assert!(answer.header("vary").unwrap().contains("X-Forwarded-Host"), "{answer:?}");
        let etag = answer.header("etag").unwrap();
        let known = card(&format!("{lines}if-none-match: {etag}\r\n")).await;
        assert_eq!(known.status, 304, "the ETag belongs to this card: {lines:?}");
        assert_eq!(known.header("last-modified"), answer.header("last-modified"));
    }
    let headers = [("authorization", "Bearer s3cret"), ("x-forwarded-host", "out.example")];
    for wire in ALL {
        let answer = wire.ask_as(&host, &headers, &Ask::Card).await;
        let card = if wire.is_rest() { answer.json() } else { answer.json()["result"].clone() };
        assert_eq!(card["supportedInterfaces"][0]["url"], "http://out.example", "{wire:?}");
    }
}

#[tokio::test]
async fn untrusted_forwarded_headers_and_a_signature_keep_the_configured_address() {
    let forwarded = [("x-forwarded-host", "evil.example"), ("x-forwarded-proto", "https")];
    let stranger = Host::with(
        |config| {
            config.url_follows = true;
            config.trusted_proxies = vec!["192.0.2.1".parse().unwrap()];
        },
        Limits::default(),
    )
    .await;
    let card = stranger.request("GET", PATH, &forwarded, b"").await.json();
    assert_eq!(card["url"], format!("http://{}", stranger.address));
    let (signer, _) = signer();
    let change = |config: &mut Config| {
        (config.url_follows, config.card_signer) = (true, Some(signer));
        config.url = "https://signed.example".into();
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    };
    let signed = Host::with(change, Limits::default()).await;
    assert_eq!(signed.request("GET", PATH, &forwarded, b"").await.json()["url"], "https://signed.example");
}

#[tokio::test]
async fn the_extended_card_is_offered_only_if_callers_have_tokens() {
    let open = Host::with(|config| config.card.extended_card = true, Limits::default()).await;
    let card = open.request("GET", PATH, &[], b"").await.json();
    assert_eq!(card["capabilities"]["extendedAgentCard"], false, "no caller has a token, so none is offered");
    assert_eq!(card["supportsAuthenticatedExtendedCard"], false);
    let secured = |config: &mut Config| {
        config.tokens = vec![Token::new("a", SecretString::from("s3cret")).unwrap()];
        config.card.extended_card = true;
    };
    let secured = Host::with(secured, Limits::default()).await;
    for wire in ALL {
        assert_eq!(wire.reason(&wire.ask(&open, &Ask::Card).await), "UNSUPPORTED_OPERATION", "{wire:?}");
        assert_eq!(wire.ask(&secured, &Ask::Card).await.status, 401, "{wire:?}");
        let named = wire.ask_as(&secured, &[("authorization", "Bearer s3cret")], &Ask::Card).await;
        assert!(named.status == 200 && named.json().get("error").is_none(), "{wire:?} {named:?}");
    }
}
