//! Characters that nobody sees and that would split a secret.

use std::borrow::Cow;

/// Removes invisible characters between white space and Latin, Greek or Cyrillic letters, where they carry no meaning. Those
/// next to other scripts and to emoji, which need them, stay, and so do those at the very end.
///
/// What is removed depends only on the nearest visible neighbours, so a text may be treated line by line.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_invisible) {
        let (before, from) = rest.split_at(start);
        let length = from.find(|char| !is_invisible(char)).unwrap_or(from.len());
        let (hidden, after) = from.split_at(length);
        out.push_str(before);
        let plain = |char: char| char < '\u{530}';
        if !(out.chars().next_back().is_none_or(plain) && after.chars().next().is_some_and(plain)) {
            out.push_str(hidden);
        }
        rest = after;
    }
    out.push_str(rest);
    if out.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

/// Soft hyphens, joiners, spaces without width, marks of direction, variation selectors and tags.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}
