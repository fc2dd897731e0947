//! What an upstream answers with beside text: images, files and data, as parts.
//!
//! A completion's `content` is a text, a list of parts, or an object; model routers put images into a field of their own
//! (`images`), in streams too, and some say them twice. Text among the parts is given back, because it is the answer. A
//! part that makes no sense, comes twice, or is over a bound is left out with a line in the log, and the answer stands: a
//! caller who gets the text and no picture is better off than one who gets neither.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use talaria_guest::{Content, Part, Turn, log};

/// Models leave padding out at times.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The most parts of one answer; models make a handful.
const MOST: usize = 16;
/// The most bytes of all of them: half of what a guest may hand to the host.
const BYTES: usize = 8 << 20;
/// Levels of data. The host takes a hundred, and fails a turn that has more.
const DEEPEST: usize = 90;
/// The longest address of a file that is not in the answer itself.
const URL: usize = 8 << 10;
/// The media type of data.
const JSON: &str = "application/json";
/// In the request's metadata: the media types that the caller can use.
const OUTPUT_MODES: &str = "talaria/output-modes";

/// The parts so far.
#[derive(Default)]
pub struct Beside {
    parts: Vec<Part>,
    bytes: usize,
    /// Marks of what was taken.
    seen: Vec<u64>,
}

impl Beside {
    /// Takes what a message, or a delta of one, holds beside text, and gives its text; none where it has no content.
    pub fn take(&mut self, message: &Value) -> Option<String> {
        let text = match message.get("content") {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Null) => Some(String::new()),
            Some(Value::Array(parts)) => {
                let texts: Vec<_> = parts.iter().filter_map(|part| self.content_part(part)).collect();
                // A list in which nothing makes sense is no answer.
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

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The answer's parts: its text, where there is any, and what was beside it. A text that is JSON is data too for a
    /// caller who said that it can use that.
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

    /// Takes a part of a content list, and gives its text.
    fn content_part<'a>(&mut self, part: &'a Value) -> Option<&'a str> {
        let field = |name: &str| part.get(name);
        if let Value::String(text) = part {
            return Some(text);
        }
        match field("type").and_then(Value::as_str).unwrap_or_default() {
            // Some servers leave the type of a text out.
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
            // Thoughts are not for the caller.
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

    /// A file in a data URL, or at an address.
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

    /// Whether a part is new, and fits.
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

/// Whether a value has no more levels than these.
fn is_within(value: &Value, levels: usize) -> bool {
    let Some(inside) = levels.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_within(item, inside)),
        Value::Object(fields) => fields.values().all(|field| is_within(field, inside)),
        _ => true,
    }
}

fn left_out(what: &str, why: &str) {
    log::write(log::Level::Warn, &format!("{what} of the answer was left out: {why}"), None);
}

/// Whether the caller said that it can use JSON. One that said nothing gets what the Python bridge gave: text, which a
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
