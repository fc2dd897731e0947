//! Tells secrets from what else a program writes behind a name: expressions, types, references, paths, words.
//!
//! In code a value without quotes is rarely a secret, in a log or in YAML it often is. The difference is a digit: random
//! keys have one, and so do most passwords, while identifiers, types and keywords have none. A literal is judged by the
//! name: a password may be words, a token may not. Only the first [`LOOKED_AT`] bytes count, so that the cost of a text
//! stays linear, however many names share a value.

use std::sync::LazyLock;

use regex::Regex;

use super::SHORTEST;
use super::names::{Place, Rank};

/// More than any token of the prefixes.
const LOOKED_AT: usize = 256;
/// The longest word that is one. English words of more letters are rare, and shorter runs of random letters too.
const LONGEST_WORD: usize = 15;

/// Parts of a text that is about secrets instead of being one.
const ABOUT: [&str; 16] = [
    "auth",
    "credential",
    "credentials",
    "key",
    "keys",
    "name",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "secret",
    "secrets",
    "token",
    "tokens",
    "value",
    "your",
];
/// What placeholders begin with.
const PLACEHOLDERS: [&str; 9] =
    ["changeme", "change-me", "change_me", "dummy", "example", "insert", "placeholder", "replace", "your"];

static TEMPLATE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let template = concat!(
        r"[$#]?\{\{?[ ]*[A-Za-z_.$][^{}]*(?:\}\}?|\z)|\{[0-9]?\}|\$\([^()]*(?:\)|\z)|<[A-Za-z%][^<>]*(?:>|\z)",
        r"|%\([a-z_]+\)s|%[A-Z_]+%|%[sdvq]|@[A-Z_]+@",
    );
    Regex::new(template).ok()
});
static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let variable = concat!(
        r"\A(?:\$(?:[A-Z_][A-Z0-9_]*|(?:env:)?[A-Za-z_]+(?:(?:->|\.)[A-Za-z_]+)*)",
        r"|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:CREDENTIALS|KEY|PASSWORD|SECRET|TOKEN))\z",
    );
    Regex::new(variable).ok()
});
static LOCATOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let locator = concat!(
        r"\A(?:[a-z][a-z0-9+.-]{1,20}://|(?:arn|urn|vault|env|file|ref|ssm|kms|secret|projects)[:/+][a-z]",
        r"|[A-Za-z0-9_./@~-]+\.(?:asc|cer|crt|conf|env|gpg|go|html|ini|java|jks|json|js|key|p12|pem|pfx|php|pub|py|rb|rs|sh|sql|toml|tpl|ts|txt|ya?ml)\z)",
    );
    Regex::new(locator).ok()
});
static PATH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\A(?:~|\.{0,2})/(?:[A-Za-z0-9_.-]{1,40}/)*[A-Za-z_.-]{1,40}\z").ok());
static CODE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let code = concat!(
        r#"\A[{\[(<|>&*=:?,.;\\"'`]|[A-Za-z0-9_!?>)\]][(\[]"#,
        r"|\A[A-Za-z_][A-Za-z0-9_]*(?:<|(?:(?:\.|::|->|\?\.|!\.)[A-Za-z_][A-Za-z0-9_]*)+[?!]*\z)",
    );
    Regex::new(code).ok()
});

/// Whether the value of a name is a secret.
pub(super) fn is_secret(rank: Rank, place: Place, value: &str, quoted: bool) -> bool {
    let value = value.get(..value.floor_char_boundary(LOOKED_AT)).unwrap_or_default();
    let value = match rank {
        // The rule for `Bearer` knows its prose.
        Rank::Authorization => match value.split_once([' ', '\t']) {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => return false,
            Some((scheme, rest)) if !scheme.contains('=') => rest.trim_start(),
            _ => value,
        },
        Rank::Cookie => return has_cookie(value),
        _ => value,
    };
    if value.chars().nth(SHORTEST - 1).is_none() || is_reference(value) || is_placeholder(value) {
        return false;
    }
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    match (rank, place) {
        (Rank::Key, Place::Environment) => true,
        (Rank::Key, _) => is_scrambled(value) && (quoted || !matches(&CODE, value)),
        (Rank::Signature, Place::Query) => digits > 0 && !is_words(value),
        (Rank::Signature, _) => value.len() >= 32 && digits > 0 && !matches(&CODE, value),
        (_, Place::Environment) => quoted || !is_call(value),
        (_, Place::Query | Place::Element) => !is_about(value),
        // A header; two words in a list otherwise.
        (_, Place::Pair) => quoted && digits > 0 && matches!(rank, Rank::Token | Rank::Authorization),
        (Rank::Password | Rank::Secret, _) if quoted => !is_about(value),
        (_, _) if quoted => !is_words(value),
        // A number is a count or an id.
        (Rank::Password | Rank::Secret, _) if digits == value.len() => true,
        (Rank::Password, _) if is_hyphenated(value) => !is_about(value),
        _ => {
            digits > 0
                && digits < value.len()
                && (!matches(&CODE, value) || is_scrambled(value))
                && !is_call(value)
        }
    }
}

/// Whether a value is a variable, a template, or the place of a secret.
pub(super) fn is_reference(value: &str) -> bool {
    if matches(&VARIABLE, value) || matches(&LOCATOR, value) || matches(&PATH, value) {
        return true;
    }
    let Some(template) = &*TEMPLATE else { return false };
    let inside: usize = template.find_iter(value).map(|found| found.len()).sum();
    inside > 0 && value.len() - inside < SHORTEST
}

/// Whether a value stands for one that is to be filled in, or hides one.
pub(super) fn is_placeholder(value: &str) -> bool {
    let hidden = |char: char| matches!(char, '*' | 'x' | 'X' | '.' | '-' | '_' | '#' | '•' | '…');
    let lower = value.to_ascii_lowercase();
    value.chars().all(hidden) || is_words(value) && PLACEHOLDERS.iter().any(|word| lower.starts_with(word))
}

/// Whether a value is made of words, as names and sentences are: letters, in parts of a plausible length.
pub(super) fn is_words(value: &str) -> bool {
    words(value).is_some()
}

/// Whether a value is made of words, one of which says that it is about secrets.
pub(super) fn is_about(value: &str) -> bool {
    words(value)
        .is_some_and(|parts| parts.iter().any(|part| ABOUT.contains(&part.to_ascii_lowercase().as_str())))
}

/// Splits a value into words, at separators and before capitals: `csrfToken`, `csrf_token`, `Enter your token`.
fn words(value: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    for part in value.split(|char: char| char.is_ascii_punctuation() || char.is_whitespace()) {
        let mut start = 0;
        let mut last = None;
        for (at, char) in part.char_indices() {
            if !char.is_alphabetic() {
                return None;
            }
            if char.is_uppercase() && last.is_some_and(char::is_lowercase) {
                parts.push((part.get(start..at)?, true));
                start = at;
            }
            last = Some(char);
        }
        parts.push((part.get(start..)?, start > 0));
    }
    // A letter alone is a word, but not between capitals.
    let plausible = |(part, inner): &(&str, bool)| {
        let length = part.chars().count();
        length <= LONGEST_WORD && !(*inner && length == 1)
    };
    parts.iter().all(plausible).then(|| parts.into_iter().map(|(part, _)| part).collect())
}

/// Whether a value looks random: letters and digits mixed, and neither a hash nor a UUID.
fn is_scrambled(value: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_.~-".contains(&byte);
    let changes = value.as_bytes().windows(2).filter(|pair| {
        matches!(pair, [a, b] if a.is_ascii_digit() && b.is_ascii_alphabetic() || a.is_ascii_alphabetic() && b.is_ascii_digit())
    });
    value.len() >= 16 && value.bytes().all(allowed) && !value.bytes().all(hex) && changes.count() >= 3
}

/// Whether a value calls a function or reads an attribute, without digits.
fn is_call(value: &str) -> bool {
    let name = value.split(['(', '[']).next().unwrap_or(value);
    let called = name.len() < value.len() || name.contains('.') || name.contains("::");
    called
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_.:!".contains(&byte))
}

/// Whether a value is a passphrase: three words or more.
fn is_hyphenated(value: &str) -> bool {
    value.split('-').count() > 2 && value.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

/// Whether one of the cookies has a value that looks like the id of a session.
fn has_cookie(value: &str) -> bool {
    let values = value.split(';').filter_map(|cookie| cookie.split_once('=')).map(|(_, value)| value.trim());
    values.into_iter().any(|value| {
        value.chars().nth(SHORTEST - 1).is_some()
            && value.bytes().any(|byte| byte.is_ascii_digit())
            && !value.contains([' ', '['])
            && !is_reference(value)
    })
}

fn matches(pattern: &LazyLock<Option<Regex>>, value: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(value))
}

/// Whether all patterns compile.
#[cfg(test)]
pub(super) fn compiles() -> bool {
    [&TEMPLATE, &VARIABLE, &LOCATOR, &PATH, &CODE].into_iter().all(|pattern| pattern.is_some())
}
