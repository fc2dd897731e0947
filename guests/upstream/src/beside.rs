//! The parts of an upstream's answer beside its text: images, files and data.
//!
//! A completion's `content` is a text, a list of parts, or an object. Model routers put images into a field of their
//! own (`images`), in streams too, and some send them twice. Text among the parts is returned, because it is the
//! answer. A part that is malformed, repeated, or over a bound is left out and logged, and the answer stands: a caller
//! who gets the text without the picture is better off than one who gets neither.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use talaria_guest::{Content, Part, Turn};

use crate::warn;

/// Models sometimes leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The number of parts of one answer at most; models send a handful.
const MOST: usize = 16;
/// The bytes of all of them at most: half of what a guest may return to the host.
const BYTES: usize = 8 << 20;
/// The depth of data at most. The host accepts a hundred levels and fails a turn with more.
const DEEPEST: usize = 90;
/// The longest URL of a file that is not inline.
const URL: usize = 8 << 10;
/// The media type of data.
const JSON: &str = "application/json";
/// The key in the request's metadata for the media types that the caller accepts.
const OUTPUT_MODES: &str = "talaria/output-modes";

/// The parts so far.
#[derive(Default)]
pub struct Beside {
    parts: Vec<Part>,
    bytes: usize,
    /// Hashes of the parts, so that a repeated one is recognised.
    seen: Vec<u64>,
}

impl Beside {
    /// Takes the parts of a message, or of a delta, and returns its text; `None` if it has no content.
    pub fn take(&mut self, message: &Value) -> Option<String> {
        let text = match message.get("content") {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Null) => Some(String::new()),
            Some(Value::Array(parts)) => {
                let texts: Vec<_> = parts.iter().filter_map(|part| self.content_part(part)).collect();
                // A list without a single usable part is not an answer.
                (parts.is_empty() || !texts.is_empty() || !self.parts.is_empty()).then(|| texts.concat())
            }
            Some(data @ Value::Object(_)) => {
                self.data(data);
                Some(String::new())
            }
            _ => None,
        };
        let images = message.get("images").and_then(Value::as_array);
        for image in images.into_iter().flatten() {
            self.content_part(image);
        }
        text
    }

    /// Whether there are no parts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The answer: its text, if there is any, then the parts. A text that is JSON is sent as data too if the caller
    /// accepts data.
    #[must_use]
    pub fn with_text(mut self, text: String, turn: &Turn) -> Vec<Part> {
        if self.parts.is_empty()
            && text.trim_start().starts_with(['{', '['])
            && reads_data(turn)
            && let Ok(data) = serde_json::from_str::<Value>(&text)
        {
            self.data(&data);
        }
        if text.is_empty() && !self.parts.is_empty() {
            return self.parts;
        }
        [Part::text(text)].into_iter().chain(self.parts).collect()
    }

    /// Takes a part of a content list; returns its text if it is one.
    fn content_part<'a>(&mut self, part: &'a Value) -> Option<&'a str> {
        let field = |name: &str| part.get(name);
        if let Value::String(text) = part {
            return Some(text);
        }
        match field("type").and_then(Value::as_str).unwrap_or_default() {
            // Some servers omit the type of a text.
            "" | "text" | "output_text" => return field("text").and_then(Value::as_str),
            "image_url" | "input_image" | "output_image" | "image" => {
                let address = field("image_url").or_else(|| field("url"));
                let url =
                    address.and_then(|address| address.get("url").or(Some(address))).and_then(Value::as_str);
                self.file(url, None, "an image");
            }
            "file" | "output_file" => {
                let file = field("file").unwrap_or(part);
                let said = |name: &str| file.get(name).and_then(Value::as_str);
                self.file(
                    said("file_data").or_else(|| said("file_url")).or_else(|| said("url")),
                    said("filename"),
                    "a file",
                );
            }
            "json" | "output_json" | "data" => match field("json").or_else(|| field("data")) {
                Some(data) => self.data(data),
                None => left_out("data", "there is none in it"),
            },
            // A caller never sees thoughts.
            "reasoning" | "thinking" => {}
            _ => left_out("a part", "its type is not known"),
        }
        None
    }

    fn data(&mut self, data: &Value) {
        if !is_within(data, DEEPEST) {
            return left_out("data", "it is nested too deep");
        }
        let data = data.to_string();
        if self.has_room(&data, data.len(), "data") {
            self.parts.push(Part { media_type: Some(JSON.into()), ..Part::new(Content::Data(data)) });
        }
    }

    /// Takes a file, inline in a data URL or by its URL.
    fn file(&mut self, url: Option<&str>, name: Option<&str>, what: &str) {
        let Some(url) = url.map(str::trim).filter(|url| !url.is_empty()) else {
            return left_out(what, "it has no address");
        };
        let (content, media_type) = if let Some(inline) = url.strip_prefix("data:") {
            let Some((media_type, encoded)) = inline.split_once(";base64,") else {
                return left_out(what, "it is not base64");
            };
            let media_type = media_type.split(';').next().unwrap_or_default();
            if media_type.is_empty() || media_type.len() > 100 || !media_type.is_ascii() {
                return left_out(what, "it has no media type");
            }
            if !self.has_room(url, encoded.len() / 4 * 3, what) {
                return;
            }
            match BASE64.decode(encoded.trim()) {
                Ok(bytes) if !bytes.is_empty() => (Content::Bytes(bytes), Some(media_type.to_owned())),
                _ => return left_out(what, "it is not base64"),
            }
        } else if (url.starts_with("https://") || url.starts_with("http://")) && url.len() <= URL {
            if !self.has_room(url, url.len(), what) {
                return;
            }
            (Content::Uri(url.to_owned()), None)
        } else {
            return left_out(what, "its address is neither a data URL nor one of the web");
        };
        let filename = name.filter(|name| !name.is_empty() && name.len() <= 255).map(str::to_owned);
        self.parts.push(Part { media_type, filename, ..Part::new(content) });
    }

    /// Whether a part is new and fits; counts it if so.
    fn has_room(&mut self, said: &str, bytes: usize, what: &str) -> bool {
        let mark = crate::mark(said.as_bytes());
        if self.seen.contains(&mark) {
            return false;
        }
        if self.parts.len() >= MOST || self.bytes + bytes > BYTES {
            left_out(what, "the answer holds too much");
            return false;
        }
        self.seen.push(mark);
        self.bytes += bytes;
        true
    }
}

/// Whether a value is nested no deeper than this.
fn is_within(value: &Value, levels: usize) -> bool {
    let Some(inside) = levels.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_within(item, inside)),
        Value::Object(fields) => fields.values().all(|field| is_within(field, inside)),
        _ => true,
    }
}

fn left_out(what: &str, why: &str) {
    warn(&format!("{what} of the answer was left out: {why}"));
}

/// Whether the caller said that it accepts JSON. One that said nothing gets text, as from the Python bridge, which a
/// blocking send answers with a bare message.
#[must_use]
pub fn reads_data(turn: &Turn) -> bool {
    let metadata = turn.metadata.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let modes = metadata.as_ref().and_then(|metadata| metadata.get(OUTPUT_MODES)?.as_array());
    modes.into_iter().flatten().filter_map(Value::as_str).any(|mode| {
        let kind = mode.split(';').next().unwrap_or_default().trim();
        [JSON, "application/*"].iter().any(|accepted| kind.eq_ignore_ascii_case(accepted))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_guest::testing::turn;

    use super::*;

    /// The text of a message, and its parts as their kinds and contents.
    fn taken(message: &Value) -> (Option<String>, Vec<String>) {
        let mut beside = Beside::default();
        let text = beside.take(message);
        (text, beside.parts.iter().map(brief).collect())
    }

    fn brief(part: &Part) -> String {
        let kind = part.media_type.as_deref().unwrap_or("-");
        let name = part.filename.as_deref().unwrap_or("-");
        match &part.content {
            Content::Text(text) => format!("text {text}"),
            Content::Data(data) => format!("{kind} {data}"),
            Content::Uri(uri) => format!("{kind} {name} {uri}"),
            Content::Bytes(bytes) => format!("{kind} {name} {} bytes", bytes.len()),
        }
    }

    #[test]
    fn content_comes_in_every_shape() {
        let png = "data:image/png;base64,cG5n";
        for (message, text, parts) in [
            (json!({ "content": "hi" }), Some("hi"), &[][..]),
            (json!({ "content": null }), Some(""), &[]),
            (json!({}), None, &[]),
            (json!({ "content": [] }), Some(""), &[]),
            (json!({ "content": [{ "type": "unknown" }] }), None, &[]),
            (
                json!({ "content": ["a", { "text": "b" }, { "type": "output_text", "text": "c" }] }),
                Some("abc"),
                &[],
            ),
            (json!({ "content": { "total": 3 } }), Some(""), &[r#"application/json {"total":3}"#]),
            (json!({ "content": [{ "type": "json", "json": [1] }] }), Some(""), &["application/json [1]"]),
            (json!({ "content": [{ "type": "thinking", "text": "hm" }, "a"] }), Some("a"), &[]),
            (
                json!({ "content": "hi", "images": [{ "type": "image_url", "image_url": { "url": png } }] }),
                Some("hi"),
                &["image/png - 3 bytes"],
            ),
            (
                json!({ "content": [{ "type": "image_url", "image_url": png }, { "type": "image", "url": png }] }),
                Some(""),
                &["image/png - 3 bytes"],
            ),
            (
                json!({ "content": [{ "type": "file", "file": { "filename": "a.txt", "file_url": "https://h/a" } }] }),
                Some(""),
                &["- a.txt https://h/a"],
            ),
        ] {
            let expected = (text.map(str::to_owned), parts.iter().map(ToString::to_string).collect());
            assert_eq!(taken(&message), expected, "{message}");
        }
    }

    #[test]
    fn malformed_files_are_left_out() {
        for url in [
            "",
            "data:image/png,abc",
            "data:;base64,cG5n",
            "data:image/png;base64,!",
            "ftp://h/a",
            "file:///a",
        ] {
            let message = json!({ "content": "hi", "images": [{ "type": "image_url", "image_url": url }] });
            assert_eq!(taken(&message), (Some("hi".into()), vec![]), "{url}");
        }
    }

    #[test]
    fn parts_are_bounded_in_number_size_and_depth() {
        let image = |n: usize| json!({ "type": "image_url", "image_url": format!("https://h/{n}") });
        let many: Vec<Value> = (0..MOST + 1).map(image).collect();
        assert_eq!(taken(&json!({ "content": "hi", "images": many })).1.len(), MOST);
        let large = |letter: &str| json!({ "type": "json", "json": letter.repeat(BYTES / 2) });
        assert_eq!(taken(&json!({ "content": [large("a"), large("b")] })).1.len(), 1);
        for (levels, taken_in) in [(DEEPEST - 1, 1), (DEEPEST, 0)] {
            let deep = (0..levels).fold(json!(1), |inner, _| json!([inner]));
            let message = json!({ "content": ["a", { "type": "json", "json": deep }] });
            assert_eq!(taken(&message).1.len(), taken_in, "{levels} levels");
        }
    }

    #[test]
    fn json_is_data_for_a_caller_that_accepts_it() {
        for (modes, text, parts) in [
            (json!(["application/json"]), r#"{"total": 3}"#, 2),
            (json!(["text/plain", "Application/JSON; q=1"]), "[1]", 2),
            (json!(["application/*"]), "[1]", 2),
            (json!(["text/plain"]), "[1]", 1),
            (json!(null), "[1]", 1),
            (json!(["application/json"]), "[1", 1),
            (json!(["application/json"]), "3", 1),
        ] {
            let mut turn = turn("hello");
            turn.metadata = Some(json!({ OUTPUT_MODES: modes }).to_string());
            assert_eq!(Beside::default().with_text(text.into(), &turn).len(), parts, "{modes} {text}");
        }
    }
}
