//! The forms of a streamed answer: each is the same live and from the log, contains each text once, and marks the last piece.

use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_a2a::Token;
use talaria_turns::{Limits, StreamAs};

use crate::kit::Host;
use crate::sse::Frame;
use crate::wire::{ALL, Ask, Wire};

const STATUS: &str = "urn:talaria:stream:status";
const ARTIFACT: &str = "urn:talaria:stream:artifact";
const WHOLE: &str = "urn:talaria:stream:whole";

fn briefs(wire: Wire, frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| wire.brief(frame)).collect()
}

/// Returns the updates between the status that the turn is working and the end.
fn said(wire: Wire, frames: &[Frame]) -> Vec<String> {
    let briefs = briefs(wire, frames);
    assert_eq!(briefs[..2], ["task submitted", "status working"], "{wire:?}");
    briefs[2..briefs.len() - 1].to_vec()
}

async fn stream(wire: Wire, host: &Host, form: &str, text: &str) -> Vec<Frame> {
    let ask = Ask::Stream(wire.params(text));
    let mut stream = wire.open(host, &[("A2A-Extensions", form)], &ask).await.ok().unwrap();
    let echo = if wire.is_old() { "x-a2a-extensions" } else { "a2a-extensions" };
    assert_eq!(stream.head.header(echo), Some(form), "the active extension is echoed: {wire:?}");
    stream.rest().await
}

async fn task(wire: Wire, host: &Host, frames: &[Frame]) -> Value {
    let data = wire.inner(&frames[0]);
    let id = data["task"]["id"].as_str().or_else(|| data["id"].as_str()).unwrap().to_owned();
    host.call("GetTask", &json!({ "id": id })).await["result"].clone()
}

#[tokio::test]
async fn one_turn_has_three_forms() {
    let host = Host::start().await;
    for wire in ALL {
        for (form, expected) in [
            (
                STATUS,
                vec![
                    "note talaria/status",
                    "note talaria/tool-progress",
                    "note talaria/mood",
                    "chunk \"Hel\"",
                    "artifact doc \"one \"",
                    "artifact doc \"two\" append lastChunk",
                    "chunk \"lo\"",
                    "artifact reply \"Hello\" lastChunk",
                ],
            ),
            (
                ARTIFACT,
                vec![
                    "status working \"thinking\"",
                    "note talaria/tool-progress",
                    "note talaria/mood",
                    "artifact reply \"Hel\" chunk",
                    "artifact doc \"one \"",
                    "artifact doc \"two\" append lastChunk",
                    "artifact reply \"lo\" append chunk",
                    "artifact reply \"\" append lastChunk chunk",
                ],
            ),
            (
                WHOLE,
                vec![
                    "note talaria/status",
                    "note talaria/tool-progress",
                    "note talaria/mood",
                    "artifact doc \"one \"",
                    "artifact doc \"two\" append lastChunk",
                    "artifact reply \"Hello\" lastChunk",
                ],
            ),
        ] {
            let frames = stream(wire, &host, form, "say").await;
            assert_eq!(said(wire, &frames), expected, "{wire:?} {form}");
            let task = task(wire, &host, &frames).await;
            assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "Hello" }]), "{wire:?} {form}");
            let history = task["history"].to_string();
            assert!(!history.contains("Hel"), "chunks are not part of the history: {history}");
        }
    }
}

#[tokio::test]
async fn every_form_resumes_exactly() {
    let host = Host::start().await;
    for wire in ALL {
        for form in [STATUS, ARTIFACT, WHOLE] {
            let live = stream(wire, &host, form, "say").await;
            let id = task(wire, &host, &live).await["id"].as_str().unwrap().to_owned();
            for after in 0..live.last().unwrap().id.unwrap() {
                let number = after.to_string();
                let headers = [("A2A-Extensions", form), ("Last-Event-ID", number.as_str())];
                let resumed =
                    wire.open(&host, &headers, &Ask::Subscribe(&id)).await.ok().unwrap().rest().await;
                let missed: Vec<_> =
                    live.iter().skip(1).filter(|frame| frame.id.unwrap() > after).cloned().collect();
                assert_eq!(resumed, missed, "{wire:?} {form} after {after}");
            }
        }
    }
}

#[tokio::test]
async fn a_text_that_differs_only_in_blanks_is_sent_once() {
    let host = Host::start().await;
    for wire in ALL {
        for (form, expected) in [
            (STATUS, vec!["chunk \"a \"", "chunk \"b \"", "artifact reply \"a b \" lastChunk"]),
            (
                ARTIFACT,
                vec![
                    "artifact reply \"a \" chunk",
                    "artifact reply \"b \" append chunk",
                    "artifact reply \"\" append lastChunk chunk",
                ],
            ),
            (WHOLE, vec!["artifact reply \"a b \" lastChunk"]),
        ] {
            let frames = stream(wire, &host, form, "blanks").await;
            assert_eq!(said(wire, &frames), expected, "{wire:?} {form}");
            let task = task(wire, &host, &frames).await;
            assert_eq!(
                task["artifacts"][0]["parts"],
                json!([{ "text": "a b " }]),
                "the text that was sent is the text that is stored"
            );
        }
    }
}

#[tokio::test]
async fn a_file_after_a_streamed_text_does_not_repeat_the_text() {
    let host = Host::start().await;
    for form in [STATUS, ARTIFACT, WHOLE] {
        let frames = stream(Wire::Rpc, &host, form, "illustrate").await;
        let last = &Wire::Rpc.inner(&frames[frames.len() - 2])["artifactUpdate"];
        let parts = last["artifact"]["parts"].as_array().unwrap();
        let texts = parts.iter().filter(|part| part.get("text").is_some()).count();
        assert_eq!(texts, usize::from(form != ARTIFACT), "{form}: {last}");
        assert_eq!(
            (parts.last().unwrap()["mediaType"].as_str(), &last["lastChunk"]),
            (Some("image/png"), &json!(true))
        );
        let task = task(Wire::Rpc, &host, &frames).await;
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "look");
        assert_eq!(task["artifacts"][0]["parts"][1]["mediaType"], "image/png");
    }
}

#[tokio::test]
async fn a_failed_turn_closes_its_artifacts() {
    let host = Host::start().await;
    for wire in ALL {
        for (form, expected) in [
            (STATUS, vec!["chunk \"half\"", "artifact reply \"half\" lastChunk"]),
            (ARTIFACT, vec!["artifact reply \"half\" chunk", "artifact reply \"\" append lastChunk chunk"]),
            (WHOLE, vec!["artifact reply \"half\" lastChunk"]),
        ] {
            let frames = stream(wire, &host, form, "break").await;
            assert_eq!(said(wire, &frames), expected, "{wire:?} {form}");
            assert!(briefs(wire, &frames).pop().unwrap().starts_with("status failed \"broken\""), "{wire:?}");
        }
        let frames = stream(wire, &host, WHOLE, "leave-open").await;
        let expected = [
            "artifact doc \"one\"",
            "artifact doc \"\" append lastChunk",
            "artifact reply \"done\" lastChunk",
        ];
        assert_eq!(said(wire, &frames), expected, "the executor's own artifacts are closed too: {wire:?}");
        let task = task(wire, &host, &frames).await;
        assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "one" }]));
    }
}

#[tokio::test]
async fn the_form_of_the_request_overrides_that_of_the_caller_and_of_the_server() {
    let change = |config: &mut talaria_a2a::Config| {
        let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
        config.tokens = vec![token("crew", "one"), token("other", "two")];
        config.stream = StreamAs::Artifact;
        config.caller_streams = [("crew".to_owned(), StreamAs::Status)].into();
    };
    let host = Host::with(change, Limits::default()).await;
    for wire in ALL {
        let json = json!(["application/json"]);
        for (token, form, modes, first) in [
            ("Bearer one", Some(WHOLE), None, "artifact reply \"a b \" lastChunk"),
            ("Bearer one", None, None, "chunk \"a \""),
            ("Bearer one", None, Some(&json), "chunk \"a \""),
            ("Bearer two", None, None, "artifact reply \"a \" chunk"),
            ("Bearer two", None, Some(&json), "artifact reply \"a b \" lastChunk"),
            ("Bearer two", Some(STATUS), Some(&json), "chunk \"a \""),
        ] {
            let mut params = wire.params("blanks");
            if let Some(modes) = modes {
                params["configuration"] = json!({ "acceptedOutputModes": modes });
            }
            let headers: Vec<_> = [("authorization", token)]
                .into_iter()
                .chain(form.map(|form| ("A2A-Extensions", form)))
                .collect();
            let frames = wire.open(&host, &headers, &Ask::Stream(params)).await.ok().unwrap().rest().await;
            assert_eq!(said(wire, &frames)[0], first, "{wire:?} {token} {form:?} {modes:?}");
        }
    }
}

#[tokio::test]
async fn the_card_names_the_forms_if_it_offers_streams() {
    for streaming in [true, false] {
        let host = Host::with(|config| config.card.streaming = streaming, Limits::default()).await;
        let card = host.request("GET", "/.well-known/agent-card.json", &[], b"").await.json();
        let extensions = card["capabilities"]["extensions"].as_array().cloned().unwrap_or_default();
        let uris: Vec<_> = extensions.iter().map(|extension| extension["uri"].as_str().unwrap()).collect();
        let expected = if streaming { vec![STATUS, ARTIFACT, WHOLE] } else { vec![] };
        assert_eq!(uris, expected);
        assert!(
            extensions.iter().all(|extension| extension.get("required").is_none()),
            "none of them is required"
        );
    }
}
