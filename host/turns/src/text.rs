//! The text of a message, in the form that agents have always been given.
//!
//! Every part that can be read as text is included: data parts and inline text files follow the text parts, each under
//! its name, so that an executor that only reads the text has them too. Images and other binary files are not included;
//! an executor finds them among the parts of the message. The text of a message that has only text parts and references
//! never changes, to the byte.
//!
//! There is one exception: if there is other text, data of a vendor's own media type (`application/vnd.…`) is left out. It
//! is for programs that know the type. Some clients send their whole conversation in such a part, and a model would read
//! everything twice.

use std::fmt::Write as _;

use crate::model::{Content, Part};

/// The media types of text files, beside `text/*`.
const TEXT_MEDIA: [&str; 3] = ["application/json", "application/xml", "application/yaml"];
/// The prefix of vendors' media types.
const VENDORS: &str = "application/vnd.";
/// The longest file name in the text, in characters. Names come from the caller.
const NAME: usize = 255;

/// Returns the text of a message: all text parts, joined with one space and trimmed; then, after a blank line, a list of
/// the files by reference; then the data parts and inline text files, each after a blank line and under its name.
///
/// White space alone counts as empty.
#[must_use]
pub fn message_text(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        if let Content::Text(piece) = &part.content
            && !piece.is_empty()
        {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(piece);
        }
    }
    let mut text = text.trim().to_owned();
    let mut files = parts.iter().filter_map(|part| match &part.content {
        Content::Uri(uri) => Some((part, uri)),
        Content::Text(_) | Content::Data(_) | Content::Bytes(_) => None,
    });
    if let Some(first) = files.next() {
        text.push_str(if text.is_empty() { "Attached files:" } else { "\n\nAttached files:" });
        for (part, uri) in std::iter::once(first).chain(files) {
            let name = part.filename.as_deref().unwrap_or_else(|| uri.rsplit('/').next().unwrap_or(uri));
            let kind = part.media_type.as_deref().unwrap_or("unknown type");
            let _ = write!(text, "\n- {name} ({kind}) at {uri}");
        }
    }
    for part in parts {
        let (content, name, kind) = match &part.content {
            Content::Data(_) if !text.is_empty() && is_vendors(part) => continue,
            Content::Data(data) => (data.to_string(), "data", "application/json"),
            Content::Bytes(bytes) if part.media_type.as_deref().is_some_and(is_text_media) => {
                let Ok(content) = std::str::from_utf8(bytes) else { continue };
                (content.to_owned(), "file", "text/plain")
            }
            Content::Text(_) | Content::Uri(_) | Content::Bytes(_) => continue,
        };
        let given = |text: &Option<String>| text.as_deref().map(one_line).filter(|text| !text.is_empty());
        let name = given(&part.filename).unwrap_or_else(|| name.to_owned());
        let kind = given(&part.media_type).unwrap_or_else(|| kind.to_owned());
        let gap = if text.is_empty() { "" } else { "\n\n" };
        let _ = write!(text, "{gap}{name} ({kind}):\n{}", content.trim_end());
    }
    text
}

/// Whether an inline file of this media type is text. Parameters of the media type are ignored.
#[must_use]
pub fn is_text_media(media_type: &str) -> bool {
    let kind = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.starts_with("text/") || TEXT_MEDIA.contains(&kind.as_str())
}

/// Whether the media type of a part is a vendor's own.
fn is_vendors(part: &Part) -> bool {
    let kind = part.media_type.as_deref().unwrap_or_default().trim_start();
    kind.get(..VENDORS.len()).is_some_and(|start| start.eq_ignore_ascii_case(VENDORS))
}

/// Puts a caller's text on one line.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(NAME)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_parts_are_joined_with_one_space_and_trimmed() {
        let image = Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(vec![1])) };
        let parts = [Part::text(" a"), image, Part::text("b\n"), Part::text("c ")];
        assert_eq!(message_text(&parts), "a b\n c");
        assert_eq!(message_text(&[Part::text(""), Part::text("  "), Part::text("\n")]), "");
    }

    #[test]
    fn files_by_reference_are_listed_after_a_blank_line() {
        let mut file = Part::new(Content::Uri("workspace:/data/report.pdf".into()));
        assert_eq!(
            message_text(&[Part::text("read it"), file.clone()]),
            "read it\n\nAttached files:\n- report.pdf (unknown type) at workspace:/data/report.pdf"
        );
        file.filename = Some("Q3.pdf".into());
        file.media_type = Some("application/pdf".into());
        assert_eq!(
            message_text(&[file]),
            "Attached files:\n- Q3.pdf (application/pdf) at workspace:/data/report.pdf"
        );
    }

    #[test]
    fn data_of_a_vendors_own_type_is_left_out_if_there_is_text() {
        let kind = Some("Application/vnd.acme.history+json".to_owned());
        let history = Part { media_type: kind, ..Part::new(Content::Data(serde_json::json!(["earlier"]))) };
        assert_eq!(message_text(&[history.clone(), Part::text("now")]), "now");
        assert_eq!(
            message_text(&[history]),
            "data (Application/vnd.acme.history+json):\n[\"earlier\"]",
            "a message that has only data is not empty"
        );
    }

    #[test]
    fn data_and_text_files_follow_under_their_names() {
        let data = Part::new(Content::Data(serde_json::json!({ "b": 1, "a": [true] })));
        assert_eq!(
            message_text(std::slice::from_ref(&data)),
            "data (application/json):\n{\"b\":1,\"a\":[true]}"
        );
        let file = |name: Option<&str>, kind: &str, bytes: &[u8]| Part {
            media_type: Some(kind.into()),
            filename: name.map(str::to_owned),
            ..Part::new(Content::Bytes(bytes.to_vec()))
        };
        let parts = [
            data,
            Part::text("compare"),
            file(Some("a\nb.csv"), "Text/CSV; charset=utf-8", b"x,y\n1,2\n"),
            file(None, "application/json", b"{}"),
            // Neither is text.
            file(None, "text/plain", &[0xff]),
            file(None, "application/pdf", b"%PDF"),
            Part::new(Content::Uri("file:/tmp/a.txt".into())),
        ];
        assert_eq!(
            message_text(&parts),
            "compare\n\nAttached files:\n- a.txt (unknown type) at file:/tmp/a.txt\n\n\
             data (application/json):\n{\"b\":1,\"a\":[true]}\n\n\
             a b.csv (Text/CSV; charset=utf-8):\nx,y\n1,2\n\n\
             file (application/json):\n{}"
        );
    }
}
