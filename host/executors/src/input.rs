//! The media types that an executor takes, and the check of a message against them.
//!
//! A component lists them in the metadata of its description (`talaria/input-modes`). Text and references need no entry:
//! every executor gets both as text. Data is JSON, so `application/json` takes it; data that is declared as another type than
//! JSON needs that type. A component without a list takes everything, because it gets the parts as they were sent. The check runs when the executor for a message is picked, so a rejected message is neither stored nor seen by an
//! executor. A message that was accepted before a restart is not checked again.

use serde_json::Value;
use talaria_turns::keys::INPUT_MODES;
use talaria_turns::{Content, Part, is_text_media};

/// The media types that an executor takes inline; `None` for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputModes(Option<Vec<String>>);

impl InputModes {
    /// Reads them from the metadata of a description.
    pub fn of(metadata: Option<&str>) -> Self {
        let metadata: Value = metadata.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let modes = metadata.get(INPUT_MODES).and_then(Value::as_array);
        Self(modes.map(|modes| modes.iter().filter_map(Value::as_str).map(str::to_owned).collect()))
    }

    /// The media types, for the card.
    pub fn names(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Checks the parts of a message. The error names the part and what to send instead.
    pub fn admit(&self, parts: &[Part]) -> Result<(), String> {
        let Some(modes) = &self.0 else { return Ok(()) };
        for (index, part) in parts.iter().enumerate() {
            let refused = |what: &str| Err(format!("message.parts[{index}] {what}"));
            let takes = |media: &str| modes.iter().any(|mode| fits(mode, media));
            match &part.content {
                Content::Text(_) | Content::Uri(_) => {}
                Content::Data(_) => match part.media_type.as_deref().filter(|media| !is_json(media)) {
                    None if takes("application/json") => {}
                    Some(media) if takes(media) => {}
                    None => return refused(&format!("holds data; this agent takes {}", modes.join(", "))),
                    Some(media) => {
                        let (media, modes) = (shown(media), modes.join(", "));
                        return refused(&format!("holds data of type {media:?}; this agent takes {modes}"));
                    }
                },
                Content::Bytes(bytes) => match part.media_type.as_deref() {
                    None => return refused("is a file without a media type; say what it is"),
                    Some(media) if !takes(media) => {
                        let (media, modes) = (shown(media), modes.join(", "));
                        return refused(&format!(
                            "is an inline file of type {media:?}; this agent takes {modes}, and other files by URL"
                        ));
                    }
                    Some(media) if is_text_media(media) => {
                        if std::str::from_utf8(bytes).is_err() {
                            return refused("is a text file that is not UTF-8");
                        }
                    }
                    Some(_) if bytes.is_empty() => return refused("is an empty file"),
                    Some(_) => {}
                },
            }
        }
        Ok(())
    }
}

/// The media type without its parameters, in lower case.
fn essence(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The media type, as much of it as an error shows.
fn shown(media: &str) -> String {
    essence(media).chars().filter(|c| !c.is_control()).take(100).collect()
}

/// Whether a media type is JSON, by its name or by its suffix.
fn is_json(media: &str) -> bool {
    let media = essence(media);
    media == "application/json" || media.ends_with("+json")
}

/// Whether `mode` covers a media type; `text/*` covers all texts.
fn fits(mode: &str, media: &str) -> bool {
    let (mode, media) = (essence(mode), essence(media));
    match mode.strip_suffix('*') {
        Some("*/") => true,
        Some(kind) => kind.ends_with('/') && media.len() > kind.len() && media.starts_with(kind),
        None => mode == media,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(media: Option<&str>, bytes: &[u8]) -> Part {
        Part { media_type: media.map(str::to_owned), ..Part::new(Content::Bytes(bytes.to_vec())) }
    }

    #[test]
    fn an_executor_without_a_list_takes_everything() {
        for metadata in [None, Some("{}"), Some("not JSON"), Some(r#"{"talaria/input-modes":"text/plain"}"#)]
        {
            let modes = InputModes::of(metadata);
            assert_eq!(modes.admit(&[file(Some("application/pdf"), b"%PDF"), file(None, b"")]), Ok(()));
        }
    }

    #[test]
    fn data_is_json_unless_it_says_that_it_is_something_else() {
        let data = |media: Option<&str>| Part {
            media_type: media.map(str::to_owned),
            ..Part::new(Content::Data(serde_json::json!({ "value": 1 })))
        };
        let modes =
            InputModes::of(Some(r#"{"talaria/input-modes":["application/json","application/x-own"]}"#));
        for media in [
            None,
            Some("application/json; charset=utf-8"),
            Some("application/vnd.a+json"),
            Some("application/x-own"),
        ] {
            assert_eq!(modes.admit(&[data(media)]), Ok(()), "{media:?}");
        }
        let why = "message.parts[0] holds data of type \"application/x-other\"; this agent takes application/json, \
                   application/x-own";
        assert_eq!(modes.admit(&[data(Some("Application/X-Other"))]), Err(why.into()));
        let texts = InputModes::of(Some(r#"{"talaria/input-modes":["text/plain"]}"#));
        texts.admit(&[data(Some("application/vnd.a+json"))]).unwrap_err();
    }

    #[test]
    fn listed_types_are_taken_and_others_are_rejected_by_part() {
        let modes =
            InputModes::of(Some(r#"{"talaria/input-modes":["text/*","application/json","image/png"]}"#));
        let taken = [
            Part::text(""),
            Part::new(Content::Uri("https://a.example/b.pdf".into())),
            Part::new(Content::Data(1.into())),
            file(Some("Image/PNG"), b"\x89PNG"),
            file(Some("text/csv; charset=utf-8"), b""),
        ];
        assert_eq!(modes.admit(&taken), Ok(()));
        for (part, why) in [
            (file(None, b"x"), "is a file without a media type; say what it is"),
            (file(Some("image/png"), b""), "is an empty file"),
            (file(Some("text/plain"), &[0xff]), "is a text file that is not UTF-8"),
            (
                file(Some("application/\u{7}pdf; a=b"), b"%PDF"),
                "is an inline file of type \"application/pdf\"; this agent takes text/*, application/json, \
                 image/png, and other files by URL",
            ),
            (
                file(Some("text/"), b"x"),
                "is an inline file of type \"text/\"; this agent takes text/*, \
                 application/json, image/png, and other files by URL",
            ),
        ] {
            assert_eq!(modes.admit(&[Part::text("a"), part]), Err(format!("message.parts[1] {why}")));
        }
        let images = InputModes::of(Some(r#"{"talaria/input-modes":["image/png"]}"#));
        let data = images.admit(&[Part::new(Content::Data(1.into()))]);
        assert_eq!(data, Err("message.parts[0] holds data; this agent takes image/png".into()));
    }
}
