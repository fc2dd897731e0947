//! The text of a message, as the agents behind us have always been given it.

use std::fmt::Write as _;

use crate::model::{Content, Part};

/// All text parts joined with one space and trimmed; then, after a blank line, the files that came by reference.
///
/// Blank parts count as empty, so that two of them are still no prompt.
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_parts_are_joined_with_one_space_and_trimmed() {
        let parts =
            [Part::text(" a"), Part::new(Content::Data(1.into())), Part::text("b\n"), Part::text("c ")];
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
}
