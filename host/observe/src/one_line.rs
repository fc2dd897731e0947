//! Text on one line: control characters are escaped.

use std::borrow::Cow;
use std::fmt::Write as _;

/// What happens to escape sequences that set a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    /// They pass. They may also come from a text that was logged, which can then set the colour of its own line.
    Keep,
    /// They are escaped like all others.
    Escape,
}

/// Escapes control characters, and the separators that some programs take for the end of a line. Borrowed if there are
/// none.
pub(crate) fn one_line(text: &str, colours: Colours) -> Cow<'_, str> {
    if !text.chars().any(ends_line) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let (taken, after) = match colour(rest).filter(|_| colours == Colours::Keep) {
            Some(length) => rest.split_at_checked(length).unwrap_or((rest, "")),
            None => rest.split_at_checked(char.len_utf8()).unwrap_or((rest, "")),
        };
        if taken.len() == char.len_utf8() && ends_line(char) {
            let _ = write!(line, "{}", char.escape_default());
        } else {
            line.push_str(taken);
        }
        rest = after;
    }
    Cow::Owned(line)
}

fn ends_line(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

/// The length of the escape sequence at the start that sets a colour: `ESC [ … m`, with nothing but digits and `;`.
fn colour(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|char: char| !char.is_ascii_digit() && char != ';')?;
    codes.get(end..)?.starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_changed() {
        for plain in ["", "plain ü 😀", "back\\slash \\n"] {
            assert!(matches!(one_line(plain, Colours::Escape), Cow::Borrowed(same) if same == plain));
        }
        for (text, line) in [
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\u{0}\u{7f}\u{9b}\u{2028}\u{2029}ü", r"\u{0}\u{7f}\u{9b}\u{2028}\u{2029}ü"),
            ("\u{1b}[31mred\u{1b}[0m", r"\u{1b}[31mred\u{1b}[0m"),
        ] {
            assert_eq!(one_line(text, Colours::Escape), line);
        }
    }

    #[test]
    fn colours_pass_and_other_sequences_do_not() {
        let coloured = "\u{1b}[2m\u{1b}[38;5;9mred\u{1b}[0m";
        assert_eq!(one_line(coloured, Colours::Keep), coloured);
        for other in
            ["\u{1b}[2J", "\u{1b}]0;title\u{7}", "\u{1b}[", "\u{1b}[1;", "\u{1b}[1 m", "\u{1b}\u{1b}"]
        {
            let line = one_line(other, Colours::Keep);
            assert!(!line.contains(|char: char| char.is_control()), "{other:?}: {line:?}");
        }
    }
}
