//! The signed card, and the keys with which the start fails.

use std::path::Path;

use serde_json::Value;
use talaria_fakes::{free_port, guest, soon};

use crate::bridge::{Bridge, Start, request, run, stderr, talaria};

const CONFIG: &str = r#"
a2a.url = "URL"
[a2a.auth]
tokens = [{ name = "alice", token = { env = "ALICE_TOKEN" } }]
[a2a.card]
extended_card = true
[a2a.card.signing]
key = { file = "card-key.pem" }
kid = "key-1"
"#;

/// The key of the first test of RFC 8032, in PKCS#8.
const KEY: &str = "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g";
/// `{"alg":"EdDSA","typ":"JOSE","kid":"key-1"}`
const PROTECTED: &str = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpPU0UiLCJraWQiOiJrZXktMSJ9";

/// Starts a bridge whose card is signed for the address that it listens on.
fn start<'a>(folder: &'a Path, url: &str) -> Start<'a> {
    let config = CONFIG.replace("URL", url);
    Start::new(folder).config(&config).arg("--demo").env("ALICE_TOKEN", "alice-1").in_place_of(url)
}

fn free_url() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

/// The paths of the card, with the version of the reader.
const FORMS: [(&str, &str); 4] = [
    ("/.well-known/agent-card.json", "1.0"),
    ("/.well-known/agent-card.json", "0.3"),
    ("/extendedAgentCard", "1.0"),
    ("/v1/card", "0.3"),
];

#[tokio::test]
async fn every_form_of_the_card_is_signed() {
    let folder = tempfile::tempdir().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n");
    std::fs::write(folder.path().join("card-key.pem"), pem).unwrap();
    let bridge = start(folder.path(), &free_url()).up();
    for (path, version) in FORMS {
        let headers = [("a2a-version", version), ("authorization", "Bearer alice-1")];
        let response = request(bridge.url(), "GET", path, &headers, "").await;
        let card: Value = serde_json::from_slice(&response.body).unwrap();
        let signatures = card["signatures"].as_array().unwrap_or_else(|| panic!("{path}: {card}"));
        assert!(!signatures.is_empty());
        for signature in signatures {
            assert_eq!(signature["protected"], PROTECTED, "{path} {version}");
            assert_eq!(signature["signature"].as_str().unwrap().len(), 86, "64 bytes: {path} {version}");
        }
    }
}

#[tokio::test]
async fn a_changed_card_has_the_same_signature_as_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n");
    std::fs::write(folder.path().join("card-key.pem"), pem).unwrap();
    std::fs::create_dir(folder.path().join("executors")).unwrap();
    let url = free_url();
    let start = || start(folder.path(), &url);
    let cards = async |bridge: &Bridge| {
        let mut cards = Vec::new();
        for (path, version) in FORMS {
            let headers = [("a2a-version", version), ("authorization", "Bearer alice-1")];
            let response = request(bridge.url(), "GET", path, &headers, "").await;
            cards.push(serde_json::from_slice::<Value>(&response.body).unwrap());
        }
        cards
    };
    let bridge = start().up();
    let before = cards(&bridge).await;
    std::fs::write(
        folder.path().join("executors/mine.toml"),
        "[settings]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"",
    )
    .unwrap();
    std::fs::write(folder.path().join("executors/mine.wasm"), guest("hermes")).unwrap();
    let after = soon("the card offers JSON", async {
        loop {
            let now = cards(&bridge).await;
            if now.iter().all(|card| card["defaultOutputModes"][1] == "application/json") {
                return now;
            }
        }
    })
    .await;
    bridge.kill();
    let again = start().up();
    assert_eq!(cards(&again).await, after, "Ed25519 signs the same card with the same bytes");
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before["signatures"], after["signatures"]);
    }
}

#[test]
fn start_and_check_fail_with_a_key_that_cannot_sign() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("talaria.toml"), CONFIG.replace("URL", "https://a.example")).unwrap();
    std::fs::write(folder.path().join("card-key.pem"), "hunter2").unwrap();
    for command in ["serve", "check"] {
        let output = run(talaria(folder.path()).arg(command).env("ALICE_TOKEN", "alice-1"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{command}: {said}");
        for expected in ["talaria.toml:8", "a2a.card.signing.key", "card-key.pem", "openssl genpkey"] {
            assert!(said.contains(expected), "{command}: {expected} is not in: {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
}
