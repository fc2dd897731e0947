//! Replies arrive as the agent wrote them, but for the values of the secrets that the host holds.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use talaria_client::{Delivery, Message, StreamItem};
use talaria_fakes::{FakeGateway, Reply, soon};

use crate::bridge::{Bridge, Start, client_with_token};

const CONFIG: &str = r#"
[a2a.auth]
tokens = [{ name = "alice", token = { env = "ALICE" } }, { name = "bob", token = { file = "bob" } }]

[admin]
listen = "127.0.0.1:0"
token = { env = "ADMIN" }
"#;

const ALICE: &str = "alice-Tok/en+0123456789";
const BOB: &str = "bob-token-0123456789";
const ADMIN: &str = "the-\"token\"-of\\the/admin";
/// Of the agent behind the gateway; the host only hands it on.
const PROVIDER: &str = "provider-key-0123456789";
const GATEWAY: &str = "gateway-key-0123456789";

/// Ordinary text that looks like secrets.
const CODE: &str = r#"api_key = os.environ["X"]; sort_key = operator.itemgetter("name")
<script integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC">
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4
DB_PASSWORD=hunter2hunter2 and sk-abcdefghijklmnopqrstuvwx"#;

async fn started(folder: &std::path::Path, gateway: &FakeGateway, extra: &str) -> Bridge {
    std::fs::write(folder.join("bob"), BOB).unwrap();
    Start::new(folder)
        .config(&format!("{CONFIG}{extra}"))
        .env("HERMES_API_BASE", &gateway.base_url())
        .env("API_SERVER_KEY", GATEWAY)
        .env("ALICE", ALICE)
        .env("ADMIN", ADMIN)
        .env("SOME_PROVIDER_API_KEY", PROVIDER)
        .up()
}

async fn ask(bridge: &Bridge) -> String {
    let client = client_with_token(bridge.url(), ALICE);
    let answer = soon("an answer", client.send(&Message::new("hi"), Delivery::Whole)).await;
    answer.unwrap().to_string()
}

/// The pieces of a streamed answer, joined.
async fn follow(bridge: &Bridge) -> String {
    let client = client_with_token(bridge.url(), ALICE);
    let message = Message::new("hi");
    let mut stream = client.stream(&message);
    let mut said = String::new();
    while let Some(item) = soon("an event", stream.next()).await.unwrap() {
        let StreamItem::Update(update) = item else { panic!("{item:?}") };
        let parts = &update["statusUpdate"]["status"]["message"]["parts"];
        said.extend(parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()));
    }
    said
}

#[tokio::test]
async fn secrets_of_the_host_are_redacted_in_every_form_and_nothing_else_is() {
    let mut said = String::from(CODE);
    for secret in [ALICE, BOB, ADMIN, PROVIDER, GATEWAY] {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let forms = [
            secret.to_owned(),
            STANDARD.encode(secret),
            STANDARD.encode(format!("u:{secret}")),
            URL_SAFE_NO_PAD.encode(format!("user:{secret}!")),
            hex,
            serde_json::to_string(secret).unwrap(),
        ];
        said.push_str(&format!("\n{}", forms.join("\n")));
    }
    let folder = tempfile::tempdir().unwrap();
    // In pieces of three characters, so that each secret is torn in many places.
    let characters: Vec<char> = said.chars().collect();
    let pieces: Vec<String> = characters.chunks(3).map(|piece| piece.iter().collect()).collect();
    let gateway = FakeGateway::start(move |request| {
        let request: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match request["stream"].as_bool() {
            Some(true) => Reply::stream(pieces.iter().map(String::as_str)),
            _ => Reply::completion(&said),
        }
    })
    .await;
    let bridge = started(folder.path(), &gateway, "").await;
    for read in [ask(&bridge).await, follow(&bridge).await] {
        let (code, rest) = read.split_at(CODE.len());
        assert_eq!(code, CODE);
        let left: Vec<&str> = rest.trim().lines().collect();
        assert_eq!(left.len(), 5 * 6, "{rest}");
        for line in left {
            // What the gateway repeats of its own key is masked before the executor reads it.
            let around = line.replace("[REDACTED:secret]", "").replace('*', "");
            assert!(around != line && around.len() <= 9, "{line:?}");
        }
    }
}

#[tokio::test]
async fn the_operator_chooses_what_is_redacted_in_replies() {
    let folder = tempfile::tempdir().unwrap();
    let said = format!("{BOB} DB_PASSWORD=hunter2hunter2 end");
    for (replies, expected) in [
        ("values", "[REDACTED:secret] DB_PASSWORD=hunter2hunter2 end".to_owned()),
        ("shapes", "[REDACTED:secret] DB_PASSWORD=[REDACTED:password] end".to_owned()),
        ("off", said.clone()),
    ] {
        let gateway = FakeGateway::always(Reply::completion(&said)).await;
        let bridge =
            started(folder.path(), &gateway, &format!("\n[redact]\nreplies = \"{replies}\"\n")).await;
        assert_eq!(ask(&bridge).await, expected, "{replies}");
    }
}

#[tokio::test]
async fn error_texts_of_upstreams_are_redacted_by_shapes_too() {
    let folder = tempfile::tempdir().unwrap();
    let error = format!("Incorrect API key provided: sk-abcdefghijklmnopqrstuvwx; {PROVIDER}");
    let gateway = FakeGateway::always(Reply::error_in_200(&error)).await;
    let bridge = started(folder.path(), &gateway, "").await;
    let read = ask(&bridge).await;
    assert!(read.contains("Incorrect API key provided: [REDACTED:sk_token]; [REDACTED:secret]"), "{read}");
    bridge.terminate();
    let (_, log) = bridge.end();
    for secret in [ALICE, BOB, ADMIN, PROVIDER, GATEWAY] {
        assert!(!log.contains(secret), "{log}");
    }
}
