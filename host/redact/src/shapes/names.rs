//! Names that mark their value as a secret: `password: …`, `"apiKey": "…"`, `?token=…`, `--token …`, `<secret>…</secret>`.
//!
//! A pattern finds the last word of a name and the sign behind it. What the whole name says ([`Rank`]) and where it stands
//! ([`Place`]) decide how the value is judged (`judge`), and where it ends.

use std::borrow::Cow;
use std::ops::Range;

use regex::{Captures, Regex};

use super::judge::is_secret;
use super::{is_delimiter, is_label, label};

/// The bytes in front of a word that are looked at for the rest of the name.
const LONGEST_NAME: usize = 64;
/// The bytes behind a name that are looked at for a type.
const LONGEST_TYPE: usize = 48;
/// The most characters that are taken off the end of a value, and blanks behind a scheme.
const TRIMMED: usize = 8;
/// What follows a literal in code.
const AFTER_LITERAL: [char; 7] = [' ', ')', ',', ';', ']', '}', '.'];
/// The backslashes in front of a quote that are counted: JSON in JSON in JSON.
const DEEPEST: usize = 7;

/// What the names of secrets end with; `rank_of` says which of these names count.
const WORD: &str = "(?i-u:pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|key|pat|auth|authorization\
                    |cookie|sig|signature|hmac|code)";
const QUOTE: &str = r#"(?:\\*["'`])"#;

/// Words in front of `key` that make it a secret one.
const SECRET_KEYS: [&str; 25] = [
    "access",
    "account",
    "admin",
    "api",
    "app",
    "application",
    "auth",
    "client",
    "crypto",
    "deploy",
    "encryption",
    "hmac",
    "jwt",
    "license",
    "master",
    "private",
    "root",
    "secret",
    "server",
    "service",
    "session",
    "signing",
    "storage",
    "subscription",
    "webhook",
];

/// What a name says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// A password, which people choose.
    Password,
    /// Another secret, chosen or random.
    Secret,
    /// A token or a key of an interface, which is random.
    Token,
    /// Some key: rather of a map or a table.
    Key,
    /// What authorises a single request.
    Signature,
    /// `Authorization`.
    Authorization,
    /// `Cookie` and `Set-Cookie`.
    Cookie,
}

/// Where a name stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// `NAME=value`.
    Environment,
    /// `?name=value&…`.
    Query,
    /// `<name>value<…`.
    Element,
    /// `--name value`.
    Flag,
    /// `"name", "value"`.
    Pair,
    /// Anywhere else: code, YAML, JSON, a header.
    Code,
}

/// A name with all that is known about it.
struct Name {
    kind: &'static str,
    rank: Rank,
    place: Place,
    /// Where the value begins, with its quotes.
    at: usize,
}

/// The last values without quotes, by what ends them. Names in one share its end, which is therefore searched for only once.
#[derive(Default)]
struct Runs {
    word: Range<usize>,
    query: Range<usize>,
    element: Range<usize>,
    line: Range<usize>,
}

/// The pattern of a name, up to its value: `password": `, `token = `, `key[32] = `; `"key", `; `--token `. The groups of
/// each are the last word, its quote, and the sign.
pub(super) fn pattern() -> String {
    format!(
        r"({WORD})({QUOTE})?[ \t]*(=>|:=|[:=>]|\[[0-9]*\][ \t]*=)[ \t]*|({WORD})({QUOTE})[ \t]*(,)[ \t]*|--[A-Za-z0-9-]*({WORD})[ \t]+"
    )
}

/// Replaces the values of names. Every name counts, also one inside the value of another: a quote that was never closed,
/// or a name without a value, must not hide the secret behind it.
pub(super) fn redact<'t>(names: &Regex, text: &'t str) -> Cow<'t, str> {
    let mut changed = String::new();
    let mut copied = 0;
    let mut runs = Runs::default();
    for found in names.captures_iter(text) {
        let Some(name) = Name::read(text, &found) else { continue };
        let (place, quoted) = name.value(text, &mut runs);
        let value = text.get(place.clone()).unwrap_or_default();
        if place.end <= copied || is_label(value) || !is_secret(name.rank, name.place, value, quoted) {
            continue;
        }
        // Of one that begins inside the last, what is behind it; what ended the last stays, or it would end elsewhere the
        // next time.
        let ended = text.get(copied..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        let start = if place.start < copied { copied + ended } else { place.start };
        changed.push_str(text.get(copied..start).unwrap_or_default());
        if start < place.end {
            changed.push_str(&label(name.kind));
        }
        copied = start.max(place.end);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    changed.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(changed)
}

// === impl Name ===

impl Name {
    fn read(text: &str, found: &Captures<'_>) -> Option<Self> {
        let end = found.get(0)?.end();
        let word = found.get(1).or_else(|| found.get(4)).or_else(|| found.get(7))?.range();
        let sign = found.get(3).or_else(|| found.get(6)).map_or("", |sign| sign.as_str());
        let before = text.get(..word.start)?;
        let before = before.get(before.ceil_char_boundary(before.len().saturating_sub(LONGEST_NAME))..)?;
        let in_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
        let name_start = word.start - (before.len() - before.trim_end_matches(in_name).len());
        let name = text.get(name_start..word.end)?;
        let front = text.get(..name_start)?.chars().next_back();

        let adjacent = sign == "=" && end == word.end + 1;
        let place = match sign {
            "" => Place::Flag,
            "," => Place::Pair,
            ">" if front == Some('<') && found.get(2).is_none() => Place::Element,
            ">" => return None,
            _ if adjacent && matches!(front, Some('?' | '&' | ';')) => Place::Query,
            _ if adjacent && !name.bytes().any(|byte| byte.is_ascii_lowercase()) => Place::Environment,
            _ if name.starts_with("--") => Place::Flag,
            _ => Place::Code,
        };
        let (rank, kind) = rank_of(name, text.get(word)?, place)?;
        let fits = match rank {
            Rank::Cookie => sign == ":",
            Rank::Signature => adjacent,
            _ => true,
        };
        let typed = if sign == ":" { text.get(end..).map_or(0, type_length) } else { 0 };
        fits.then(|| Self { kind, rank, place, at: end + typed })
    }

    /// Returns where the value is, without its quotes, and whether it has any. A quoted value ends at the end of its line at
    /// the latest, any other at a quote or a [delimiter](is_delimiter).
    fn value(&self, text: &str, runs: &mut Runs) -> (Range<usize>, bool) {
        let at = self.at;
        let rest = text.get(at..).unwrap_or_default();
        let slashes = rest.len() - rest.trim_start_matches('\\').len();
        if let Some(quote) = rest.get(slashes..).and_then(|rest| rest.chars().next())
            && matches!(quote, '"' | '\'' | '`')
            && self.place != Place::Element
        {
            let start = at + slashes + 1;
            return (start..closed(text, start, quote, slashes.min(DEEPEST)).unwrap_or(start), true);
        }
        let is_end = |char: char| char == '"' || is_delimiter(char);
        let mut place = match (self.rank, self.place) {
            (Rank::Cookie, _) => run_at(text, at, &mut runs.line, |char| "\"'\r\n".contains(char)),
            (_, Place::Query) => {
                run_at(text, at, &mut runs.query, |char| is_end(char) || "&#'".contains(char))
            }
            (_, Place::Element) => run_at(text, at, &mut runs.element, |char| is_end(char) || char == '<'),
            _ => run_at(text, at, &mut runs.word, is_end),
        };
        if self.place == Place::Element && !text.get(place.end..).is_some_and(|rest| rest.starts_with("</")) {
            return (at..at, false);
        }
        // A scheme belongs to what follows it.
        let word = text.get(place.clone()).unwrap_or_default();
        let scheme = ["Bearer", "Basic", "Token"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        if scheme || self.rank == Rank::Authorization {
            let rest = text.get(place.end..).unwrap_or_default().bytes();
            let blank = rest.take(TRIMMED).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            if blank > 0 {
                place.end = run_at(text, place.end + blank, &mut runs.word, is_end).end;
            }
        }
        let value = text.get(place.clone()).unwrap_or_default();
        let trimmed = value.bytes().rev().take(TRIMMED).take_while(|byte| b",;)}'`\\".contains(byte)).count();
        (at..place.end - trimmed, false)
    }
}

/// The value without quotes that begins there, up to the first of the characters that end it.
fn run_at(text: &str, at: usize, last: &mut Range<usize>, is_end: impl Fn(char) -> bool) -> Range<usize> {
    if !last.contains(&at) {
        let rest = text.get(at..).unwrap_or_default();
        *last = at..at + rest.find(is_end).unwrap_or(rest.len());
    }
    at..last.end
}

/// The end of a value that was opened with a quote behind that many backslashes. A quote behind more of them belongs to the
/// value, unless the first ones are backslashes of the value themselves. `None` if the quote closed a literal that ends in
/// the name: what follows is code.
fn closed(text: &str, start: usize, quote: char, slashes: usize) -> Option<usize> {
    let rest = text.get(start..)?;
    let mut before = 0;
    for (at, char) in rest.char_indices() {
        let ends = before <= slashes || (before - slashes).is_multiple_of(2 * (slashes + 1));
        match char {
            '\n' => return (!rest.starts_with(AFTER_LITERAL)).then_some(start + at),
            _ if char == quote && ends => return Some(start + at - before.min(slashes)),
            '\\' => before += 1,
            _ => before = 0,
        }
    }
    (!rest.starts_with(AFTER_LITERAL)).then_some(text.len())
}

/// The length of a type and the sign behind it: of `Option<&str> = ` in `password: Option<&str> = "…"`. Types have no digits
/// here, as secrets have.
fn type_length(text: &str) -> usize {
    let part = text.get(..text.floor_char_boundary(LONGEST_TYPE)).unwrap_or_default();
    let of_type = |byte: u8| byte.is_ascii_alphabetic() || b"_&'<>[]|?.:, ".contains(&byte);
    match part.split_once(" = ") {
        Some((name, _)) if name.starts_with(|char: char| char != '\'') && name.bytes().all(of_type) => {
            name.len() + 3
        }
        _ => 0,
    }
}

/// What a name says about its value, and the kind of secret that is. Case and separators do not matter: `apiKey`,
/// `api-key`, `API_KEY` and `apikey` are one name.
fn rank_of(name: &str, word: &str, place: Place) -> Option<(Rank, &'static str)> {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect();
    let ends = |words: &[&str]| words.iter().any(|word| plain.ends_with(word));
    let front = name.get(..name.len() - word.len()).and_then(|front| front.chars().next_back());
    // Not part of a longer word, as in `monkey` and `barcode`; `sortKey` has two words.
    let apart = front.is_none_or(|front| {
        !front.is_ascii_alphabetic() || word.starts_with(char::is_uppercase) && front.is_ascii_lowercase()
    });
    let key = plain.strip_suffix("key");
    let rank = if ends(&["password", "passwd", "passphrase", "passcode"]) || ends(&["pwd"]) && apart {
        (Rank::Password, "password")
    } else if ends(&["secret"]) {
        (Rank::Secret, "secret")
    } else if ends(&["token"]) || ends(&["pat"]) && apart && place == Place::Environment {
        (Rank::Token, "token")
    } else if ends(&["credential", "credentials"]) {
        (Rank::Token, "credentials")
    } else if ends(&["apikey"]) {
        (Rank::Token, "api_key")
    } else if key.is_some_and(|front| SECRET_KEYS.iter().any(|word| front.ends_with(word))) {
        (Rank::Token, "key")
    } else if key.is_some_and(|front| !front.is_empty() && !front.ends_with("public")) && apart {
        (Rank::Key, "key")
    } else if ends(&["authorization"]) {
        (Rank::Authorization, "authorization")
    } else if ends(&["cookie"]) {
        (Rank::Cookie, "cookie")
    } else if ends(&["signature", "hmac"]) || ends(&["sig"]) && apart && place == Place::Query {
        (Rank::Signature, "signature")
    } else if ends(&["code", "key", "auth"]) && apart && place == Place::Query {
        (Rank::Signature, "key")
    } else {
        return None;
    };
    Some(rank)
}
