//! Our message in the agent's version.
//!
//! What the caller said beside its message is passed on, but for the keys that mean something to this host: the agent may
//! be such a host too, and must not take them for its own caller's wishes. The number of hosts that the message passed
//! through is one more.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use talaria_guest::{Content, Part, Role, Turn};

use crate::Settings;
use crate::peer::{Binding, Peer, Version};

/// What begins the keys of this host.
const OURS: &str = "talaria/";
/// The key for how many hosts a message passed through before.
const HOPS: &str = "talaria/hops";
/// The key in a turn's metadata for the media types that the caller accepts.
const OUTPUT_MODES: &str = "talaria/output-modes";
/// The key that says that data was not an object, which 0.3 demands, and is within one.
pub(crate) const WRAPPED: &str = "data_part_compat";

/// The parameters of a send. `task` and `context` are the agent's.
pub(crate) fn send(
    turn: &Turn,
    settings: &Settings,
    peer: &Peer,
    task: Option<&str>,
    context: Option<&str>,
) -> Value {
    let mut message = Map::new();
    message.insert("messageId".into(), message_id(turn).into());
    message.insert("role".into(), if peer.version == Version::V1 { "ROLE_USER" } else { "user" }.into());
    if peer.version == Version::V03 {
        message.insert("kind".into(), "message".into());
    }
    message
        .insert("parts".into(), turn.message.parts.iter().map(|part| encode(part, peer.version)).collect());
    for (name, id) in [("taskId", task), ("contextId", context)] {
        if let Some(id) = id {
            message.insert(name.into(), id.into());
        }
    }
    let mut metadata = theirs(turn.message.metadata.as_deref());
    metadata.insert(HOPS.into(), hops(turn).saturating_add(1).into());
    message.insert("metadata".into(), metadata.into());

    let mut configuration = match peer.version {
        Version::V1 => json!({ "returnImmediately": true }),
        Version::V03 => json!({ "blocking": false }),
    };
    let modes = output_modes(turn, settings);
    if !modes.is_empty()
        && let Some(configuration) = configuration.as_object_mut()
    {
        configuration.insert("acceptedOutputModes".into(), modes.into());
    }
    let mut params = Map::new();
    params.insert("message".into(), message.into());
    params.insert("configuration".into(), configuration);
    let metadata = theirs(turn.metadata.as_deref());
    if !metadata.is_empty() {
        params.insert("metadata".into(), metadata.into());
    }
    // HTTP+JSON has the tenant in its path.
    if peer.binding == Binding::JsonRpc {
        peer.tenant_into(&mut params);
    }
    params.into()
}

/// The id of our message: our task, which the host named, and the number of the turn in it. The caller's own id is not
/// taken, because two callers may have chosen the same, and to the agent they are one.
fn message_id(turn: &Turn) -> String {
    let number = turn.history.iter().filter(|message| message.role == Role::User).count() + 1;
    format!("{}-{number}", turn.task_id)
}

/// The hosts that the message passed through before.
fn hops(turn: &Turn) -> u64 {
    let metadata = object(turn.message.metadata.as_deref());
    let hops = metadata.get(HOPS).and_then(Value::as_f64).unwrap_or_default();
    // Some agents pass numbers on as fractions. Saturates, and the host rejected what is no number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is meant")]
    let hops = hops as u64;
    hops
}

fn object(metadata: Option<&str>) -> Map<String, Value> {
    metadata.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The metadata without the keys of this host.
fn theirs(metadata: Option<&str>) -> Map<String, Value> {
    object(metadata).into_iter().filter(|(key, _)| !key.starts_with(OURS)).collect()
}

/// The media types that the caller accepts, else those of the settings.
fn output_modes(turn: &Turn, settings: &Settings) -> Vec<Value> {
    let metadata = object(turn.metadata.as_deref());
    match metadata.get(OUTPUT_MODES).and_then(Value::as_array) {
        Some(modes) if !modes.is_empty() => modes.clone(),
        _ => settings.output_modes.iter().map(|mode| mode.as_str().into()).collect(),
    }
}

fn encode(part: &Part, version: Version) -> Value {
    let mut encoded = Map::new();
    let mut metadata = object(part.metadata.as_deref());
    match (&part.content, version) {
        (Content::Text(text), Version::V1) => {
            encoded.insert("text".into(), text.as_str().into());
        }
        (Content::Text(text), Version::V03) => {
            encoded.insert("kind".into(), "text".into());
            encoded.insert("text".into(), text.as_str().into());
        }
        (Content::Data(data), version) => {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            if version == Version::V03 {
                encoded.insert("kind".into(), "data".into());
            }
            if version == Version::V03 && !data.is_object() {
                metadata.insert(WRAPPED.into(), true.into());
                encoded.insert("data".into(), json!({ "value": data }));
            } else {
                encoded.insert("data".into(), data);
            }
        }
        (Content::Uri(url), Version::V1) => {
            encoded.insert("url".into(), url.as_str().into());
        }
        (Content::Bytes(bytes), Version::V1) => {
            encoded.insert("raw".into(), STANDARD.encode(bytes).into());
        }
        (content, Version::V03) => {
            let mut file = Map::new();
            match content {
                Content::Uri(url) => file.insert("uri".into(), url.as_str().into()),
                Content::Bytes(bytes) => file.insert("bytes".into(), STANDARD.encode(bytes).into()),
                Content::Text(_) | Content::Data(_) => None,
            };
            for (name, value) in [("mimeType", &part.media_type), ("name", &part.filename)] {
                if let Some(value) = value {
                    file.insert(name.into(), value.as_str().into());
                }
            }
            encoded.insert("kind".into(), "file".into());
            encoded.insert("file".into(), file.into());
        }
    }
    if version == Version::V1 {
        for (name, value) in [("mediaType", &part.media_type), ("filename", &part.filename)] {
            if let Some(value) = value {
                encoded.insert(name.into(), value.as_str().into());
            }
        }
    }
    if !metadata.is_empty() {
        encoded.insert("metadata".into(), metadata.into());
    }
    encoded.into()
}

#[cfg(test)]
mod tests {
    use talaria_guest::testing::{message, turn};

    use super::*;

    fn peer(version: Version) -> Peer {
        Peer {
            url: "http://h".into(),
            binding: Binding::JsonRpc,
            version,
            tenant: Some("t".into()),
            streams: true,
            token: "A2A_TOKEN".into(),
            extension: None,
        }
    }

    fn settings() -> Settings {
        serde_json::from_value(json!({ "url": "http://h", "output_modes": ["text/plain"] })).unwrap()
    }

    #[test]
    fn a_message_carries_everything_but_what_was_meant_for_this_host() {
        let mut turn = turn("hi");
        turn.message.metadata =
            Some(json!({ "talaria/executor": "x", "talaria/hops": 2.0, "session": { "a": 1 } }).to_string());
        turn.metadata = Some(json!({ "talaria/tenant": "x", "mine": 1 }).to_string());
        turn.history = vec![message([Content::Text("before".into())])];
        assert_eq!(
            send(&turn, &settings(), &peer(Version::V1), Some("t1"), Some("c1")),
            json!({
                "message": {
                    "messageId": "task-1-2", "role": "ROLE_USER", "parts": [{ "text": "hi" }],
                    "taskId": "t1", "contextId": "c1", "metadata": { "session": { "a": 1 }, "talaria/hops": 3 },
                },
                "configuration": { "returnImmediately": true, "acceptedOutputModes": ["text/plain"] },
                "metadata": { "mine": 1 },
                "tenant": "t",
            })
        );
        turn.metadata = Some(json!({ OUTPUT_MODES: ["image/png"] }).to_string());
        let old = send(&turn, &settings(), &peer(Version::V03), None, None);
        assert_eq!(old["configuration"], json!({ "blocking": false, "acceptedOutputModes": ["image/png"] }));
        assert_eq!((&old["message"]["kind"], &old["message"]["role"]), (&json!("message"), &json!("user")));
        assert!(old.get("tenant").is_none() && old.get("metadata").is_none());
    }

    #[test]
    fn every_part_has_a_form_in_both_versions() {
        let file = Part {
            media_type: Some("image/png".into()),
            filename: Some("a.png".into()),
            metadata: Some(r#"{"k":1}"#.into()),
            ..Part::new(Content::Bytes(b"png".to_vec()))
        };
        for (part, new, old) in [
            (Part::text("a"), json!({ "text": "a" }), json!({ "kind": "text", "text": "a" })),
            (
                file,
                json!({ "raw": "cG5n", "mediaType": "image/png", "filename": "a.png", "metadata": { "k": 1 } }),
                json!({
                    "kind": "file", "file": { "bytes": "cG5n", "mimeType": "image/png", "name": "a.png" },
                    "metadata": { "k": 1 },
                }),
            ),
            (
                Part::new(Content::Uri("http://f".into())),
                json!({ "url": "http://f" }),
                json!({ "kind": "file", "file": { "uri": "http://f" } }),
            ),
            (
                Part::new(Content::Data("[1]".into())),
                json!({ "data": [1] }),
                json!({ "kind": "data", "data": { "value": [1] }, "metadata": { WRAPPED: true } }),
            ),
            (
                Part::new(Content::Data(r#"{"a":1}"#.into())),
                json!({ "data": { "a": 1 } }),
                json!({ "kind": "data", "data": { "a": 1 } }),
            ),
        ] {
            assert_eq!(encode(&part, Version::V1), new);
            assert_eq!(encode(&part, Version::V03), old);
        }
    }
}
