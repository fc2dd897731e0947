//! The caller's message in OpenAI's shape: a text, or a list of that text and the images.
//!
//! The host has made the text, so references, data parts and text files are in it already. Images are sent as data
//! URLs. A message without images is sent as a plain text, because many servers take nothing else. Images are written
//! straight into the body, whose size is known in advance: an image of 10 MB would not fit into a guest's memory three
//! times.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use talaria_guest::{Content, Failure, FailureKind, Turn};

/// The media types of images, as models take them.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The media types that the host turns into text.
const TEXTS: [&str; 5] = ["text/plain", "text/*", "application/json", "application/xml", "application/yaml"];
/// The bytes of a body beside its longest parts.
const REST: usize = 4_096;

/// A message for a model.
pub struct Prompt<'a> {
    text: &'a str,
    images: Vec<Image<'a>>,
}

struct Image<'a> {
    media_type: &'static str,
    bytes: &'a [u8],
}

/// The input modes of an executor that sends images.
#[must_use]
pub fn input_modes() -> Vec<&'static str> {
    [TEXTS.as_slice(), &IMAGES].concat()
}

impl<'a> Prompt<'a> {
    /// The turn's message.
    ///
    /// # Errors
    /// A file that is neither text nor an image. This host rejects it before the turn; another one may not.
    pub fn of(turn: &'a Turn) -> Result<Self, Failure> {
        let mut images = Vec::new();
        for part in &turn.message.parts {
            let Content::Bytes(bytes) = &part.content else { continue };
            let media_type = part.media_type.as_deref().unwrap_or_default();
            let kind = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if let Some(media_type) = IMAGES.into_iter().find(|image| *image == kind) {
                images.push(Image { media_type, bytes });
            } else if !(kind.starts_with("text/") || TEXTS.contains(&kind.as_str())) {
                let what = "the message holds a file that is neither text nor an image; send its URL instead";
                return Err(Failure::new(FailureKind::InvalidTurn, what));
            }
        }
        Ok(Self { text: &turn.text, images })
    }

    /// Whether there is nothing to answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }

    /// Whether its text has more characters than this. A short text is not counted.
    #[must_use]
    pub fn is_longer(&self, characters: usize) -> bool {
        self.text.len() > characters && self.length() > characters
    }

    /// The number of characters of its text.
    #[must_use]
    pub fn length(&self) -> usize {
        self.text.chars().count()
    }

    /// Whether it has no images.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.images.is_empty()
    }

    /// A JSON body that contains it, allocated once.
    ///
    /// # Errors
    /// A value that is not JSON, which none of our types is.
    pub fn body(&self, body: &impl Serialize) -> Result<Vec<u8>, Failure> {
        let images: usize = self.images.iter().map(|image| image.bytes.len() / 3 * 4 + REST).sum();
        let mut bytes = Vec::with_capacity(if self.is_text() { 0 } else { images + self.text.len() + REST });
        serde_json::to_writer(&mut bytes, body)
            .map_err(|error| Failure::new(FailureKind::Internal, format!("request: {error}")))?;
        Ok(bytes)
    }
}

impl Serialize for Prompt<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_text() {
            return serializer.serialize_str(self.text);
        }
        let text = (!self.text.trim().is_empty()).then_some(Text(self.text));
        let mut parts = serializer.serialize_seq(Some(self.images.len() + usize::from(text.is_some())))?;
        if let Some(text) = text {
            parts.serialize_element(&text)?;
        }
        for image in &self.images {
            parts.serialize_element(image)?;
        }
        parts.end()
    }
}

struct Text<'a>(&'a str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut part = serializer.serialize_map(Some(2))?;
        part.serialize_entry("type", "text")?;
        part.serialize_entry("text", self.0)?;
        part.end()
    }
}

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut part = serializer.serialize_map(Some(2))?;
        part.serialize_entry("type", "image_url")?;
        part.serialize_entry("image_url", &Address(self))?;
        part.end()
    }
}

/// The `image_url` of an image: a data URL.
struct Address<'a>(&'a Image<'a>);

impl Serialize for Address<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut address = serializer.serialize_map(Some(1))?;
        address.serialize_entry("url", &DataUrl(self.0))?;
        address.end()
    }
}

struct DataUrl<'a>(&'a Image<'a>);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Image { media_type, bytes } = self.0;
        serializer
            .collect_str(&format_args!("data:{media_type};base64,{}", Base64Display::new(bytes, &STANDARD)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_guest::Part;
    use talaria_guest::testing::turn;

    use super::*;

    fn file(media_type: &str) -> Part {
        Part { media_type: Some(media_type.into()), ..Part::new(Content::Bytes(b"png".to_vec())) }
    }

    #[test]
    fn a_prompt_is_a_text_unless_there_are_images() {
        let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,cG5n" } });
        for (text, files, expected) in [
            ("hello", &[][..], json!("hello")),
            ("hello", &["text/csv"], json!("hello")),
            ("hello", &["image/png"], json!([{ "type": "text", "text": "hello" }, image])),
            (" ", &["Image/PNG; q=1", "image/png"], json!([image, image])),
        ] {
            let mut turn = turn(text);
            turn.message.parts.extend(files.iter().map(|kind| file(kind)));
            let prompt = Prompt::of(&turn).unwrap();
            assert_eq!(serde_json::to_value(&prompt).unwrap(), expected, "{text:?} {files:?}");
            assert!(!prompt.is_empty());
        }
        assert!(Prompt::of(&turn(" \n")).unwrap().is_empty());
        assert_eq!(Prompt::of(&turn("äö")).unwrap().length(), 2);
    }

    #[test]
    fn other_files_are_rejected() {
        for media_type in ["application/pdf", "image/svg+xml", "audio/wav", ""] {
            let mut turn = turn("hello");
            turn.message.parts.push(file(media_type));
            let failure = Prompt::of(&turn).err().unwrap();
            assert_eq!(failure.kind, FailureKind::InvalidTurn, "{media_type}");
        }
    }
}
