//! Replaces what looks like a secret with `[REDACTED:kind]`, by rules.
//!
//! | rule | module | kind |
//! |---|---|---|
//! | private keys | `pem` | `private_key` |
//! | the password in `scheme://user:password@` and in `-u user:password` | here | `password` |
//! | the value of a name that ends in `password`, `secret`, `token`, `api_key` and so on: in assignments, JSON, YAML, headers, queries, command lines, elements | `names`, `judge` | `password`, `secret`, … |
//! | the value after `Bearer` | here | `bearer_token` |
//! | JSON web tokens | here | `jwt` |
//! | keys with the prefix or the form of an issuer | `prefixes` | `sk_token`, … |
//! | base64 from 40 characters, with upper case, lower case and digits, few slashes, not hex, not words; neither a hash of a known length nor an image in a data URL | here | `base64_blob` |
//!
//! Values of less than 8 characters are left: they are placeholders far more often than secrets. Names are left too, because
//! `DB_PASSWORD=[REDACTED:password]` tells an operator where to look. Invisible characters inside a secret do not hide it
//! (`invisible`). Ordinary code should pass: `tests/corpus` has the lines that prove how much of it does.
//!
//! The rules run one after the other, each on the output of the one before, until nothing changes: redaction is idempotent.
//! Except for private keys, no match goes beyond a line, so [`TextStream`](crate::TextStream) can work line by line. The
//! long pattern of `prefixes` is applied only to lines with a long run of letters and digits.
//!
//! The time is linear in the length. Checked with 1 MB of each opening of a value, repeated: none takes more than a second.
//! Sources of Rust in pieces of 4 KiB pass at 180 MB/s on a shared core, so a KiB costs 5 to 6 microseconds.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Match, Regex};

mod invisible;
mod judge;
mod names;
mod pem;
mod prefixes;

pub(crate) use invisible::visible;
use judge::{is_about, is_placeholder, is_reference, is_words};
use prefixes::PREFIXES;

/// Shorter values are left.
const SHORTEST: usize = 8;

const MARK: &str = "[REDACTED:";
pub(crate) const PRIVATE_KEY: &str = "[REDACTED:private_key]";

/// The kinds that are not of a prefix.
const KINDS: [&str; 13] = [
    "private_key",
    "secret",
    "password",
    "api_key",
    "token",
    "key",
    "credentials",
    "authorization",
    "cookie",
    "signature",
    "bearer_token",
    "jwt",
    "base64_blob",
];

/// Words that follow "Bearer" in prose.
const PROSE: [&str; 8] = [
    "authentication",
    "authorization",
    "certificate",
    "certificates",
    "challenge",
    "credential",
    "credentials",
    "security",
];

/// The characters that end a value without quotes, as the inside of a character class: white space, and scripts that are
/// written without spaces.
const ENDS: &str = r"\s\x{E00}-\x{10FFFF}";

/// The shortest run of characters that may be a key of `prefixes`, with a digit and without.
const SHORTEST_RUN: usize = 14;
const LONG_RUN: usize = 18;

/// The lengths of hashes in base64, with and without padding: SHA-256, SHA-384, SHA-512.
const HASHES: [usize; 5] = [43, 44, 64, 86, 88];

/// The most rounds of the rules over a text that they change. Two rounds settle every known case; the bound keeps any other
/// from looping.
const ROUNDS: usize = 8;

static RULES: LazyLock<Option<Rules>> = LazyLock::new(|| Rules::compile().ok());
/// Apart from the others, because they take megabytes and most processes never meet a text that needs them.
static RUN_RULES: LazyLock<Option<RunRules>> = LazyLock::new(|| RunRules::compile().ok());

struct Rules {
    private_key: Regex,
    open_key: Regex,
    address: Regex,
    user: Regex,
    names: Regex,
    bearer: Regex,
}

/// The rules for keys that are recognised by themselves.
struct RunRules {
    jwt: Regex,
    prefixes: Regex,
    blob: Regex,
}

/// Removes what looks like a secret. Borrows if there is nothing to remove, which costs a few microseconds per KiB.
///
/// ```
/// assert_eq!(talaria_redact::shapes("X_TOKEN=Bearer zzzzzzzzzz"), "X_TOKEN=[REDACTED:token]");
/// ```
pub fn shapes(text: &str) -> Cow<'_, str> {
    scrub_rest(scrub_private_keys(visible(text)))
}

/// Applies only the first rule. It runs before known values are removed, because their removal could break a key apart.
pub(crate) fn scrub_private_keys(text: Cow<'_, str>) -> Cow<'_, str> {
    match &*RULES {
        Some(rules) if text.contains("-----BEGIN") => {
            rewrite(text, |text| rules.private_key.replace_all(text, PRIVATE_KEY))
        }
        Some(_) => text,
        // If the rules do not compile, nothing is let through; a test ensures that they do.
        None => Cow::Borrowed("[REDACTED]"),
    }
}

/// Applies all other rules.
pub(crate) fn scrub_rest(text: Cow<'_, str>) -> Cow<'_, str> {
    match &*RULES {
        Some(rules) => rules.apply(text),
        None => Cow::Borrowed("[REDACTED]"),
    }
}

/// The start of the first private key that the text leaves open; a header inside it may look like another.
pub(crate) fn open_key(text: &str) -> Option<usize> {
    let from = text.find("-----BEGIN ")?;
    let found = RULES.as_ref()?.open_key.find(text.get(from..)?)?;
    Some(from + found.start())
}

/// All kinds, so that a known secret that is part of a label can be ignored.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().chain(PREFIXES.into_iter().map(|(kind, _, _)| kind))
}

/// Whether a text may be split after this character without splitting a secret: white space, and every character from U+0E00
/// on. The scripts there (Thai, Chinese, Japanese, Korean, emoji) are written without spaces, and no secret is written in
/// them.
fn is_delimiter(char: char) -> bool {
    char.is_whitespace() || char >= '\u{E00}'
}

/// Applies a step, without a copy if it changes nothing.
pub(crate) fn rewrite<'a>(
    text: Cow<'a, str>,
    step: impl for<'t> FnOnce(&'t str) -> Cow<'t, str>,
) -> Cow<'a, str> {
    match text {
        Cow::Borrowed(text) => step(text),
        Cow::Owned(text) => match step(&text) {
            Cow::Borrowed(_) => Cow::Owned(text),
            Cow::Owned(changed) => Cow::Owned(changed),
        },
    }
}

pub(crate) fn label(kind: &str) -> String {
    format!("{MARK}{kind}]")
}

// === impl Rules ===

impl Rules {
    fn compile() -> Result<Self, regex::Error> {
        let address = format!(
            r#"([A-Za-z][A-Za-z0-9+.-]{{0,30}}://[^:/@?#\[\]"'<>{ENDS}]{{0,128}}:)([^/"'<>{ENDS}]{{8,}})@"#
        );
        let user = r#"((?-u:\B)(?:-u|--user|--proxy-user)[ \t=]+['"]?[^\s:'"]{1,64}:)([^\s'"]{8,})"#;
        let bearer = format!(r#"((?-u:\b)(?i-u:bearer)[ \t]+)([^"'`\\<>,;){{}}\]{ENDS}]{{8,}})"#);
        Ok(Self {
            private_key: pem::key()?,
            open_key: pem::open_key()?,
            address: Regex::new(&address)?,
            user: Regex::new(user)?,
            names: Regex::new(&names::pattern())?,
            bearer: Regex::new(&bearer)?,
        })
    }

    /// Repeats the rules until nothing changes: a removal can create a match for another rule. That is rare, and each round
    /// leaves less to find.
    fn apply<'a>(&self, mut text: Cow<'a, str>) -> Cow<'a, str> {
        for _ in 0..ROUNDS {
            match self.once(&text) {
                Cow::Owned(changed) if changed != *text => text = Cow::Owned(changed),
                Cow::Owned(_) | Cow::Borrowed(_) => break,
            }
        }
        text
    }

    fn once<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // Again: a label may be the new neighbour of an invisible character.
        let text = rewrite(visible(text), |text| replace(&self.address, text, redact_address));
        let text = rewrite(text, |text| names::redact(&self.names, text));
        let text = rewrite(text, |text| replace(&self.bearer, text, redact_bearer));
        let text = rewrite(text, |text| replace(&self.user, text, redact_user));
        rewrite(text, redact_runs)
    }
}

// === impl RunRules ===

impl RunRules {
    fn compile() -> Result<Self, regex::Error> {
        let blob = concat!(
            r"((?:sha(?:256|384|512)[-:]|SHA256:|h1:|data:(?:image|font|audio|video)/[a-z0-9.+-]{1,32};base64,",
            r"|(?:ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp[0-9]{3}) )?)([A-Za-z0-9+/]{40,}={0,2})",
        );
        Ok(Self {
            jwt: Regex::new(r"(?-u:\b)eyJ[A-Za-z0-9_-]{15,}(?:\.[A-Za-z0-9_-]+){2,4}")?,
            prefixes: Regex::new(&prefixes::pattern())?,
            blob: Regex::new(blob)?,
        })
    }

    fn line<'t>(&self, line: &'t str) -> Cow<'t, str> {
        let redacted = replace(&self.jwt, line, |_found| Some(label("jwt")));
        let redacted = rewrite(redacted, |line| replace(&self.prefixes, line, redact_prefixed));
        rewrite(redacted, |line| replace(&self.blob, line, redact_blob))
    }
}

/// Applies the rules for keys that are recognised by themselves to the lines that have a run worth it, which are few.
fn redact_runs(text: &str) -> Cow<'_, str> {
    let mut changed = String::new();
    let mut copied = 0;
    while let Some(run) = run_from(text, copied) {
        let Some(rules) = &*RUN_RULES else { return Cow::Borrowed("[REDACTED]") };
        let start =
            text.get(copied..run).and_then(|before| before.rfind('\n')).map_or(copied, |at| copied + at + 1);
        let end = text.get(run..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| run + at);
        let line = text.get(start..end).unwrap_or_default();
        changed.push_str(text.get(copied..start).unwrap_or_default());
        changed.push_str(&rules.line(line));
        copied = end;
    }
    if changed == text.get(..copied).unwrap_or_default() {
        return Cow::Borrowed(text);
    }
    changed.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(changed)
}

/// Finds a run of characters that is long enough for a key. A shorter one must have a digit, as words have not. Looks only
/// at every so many characters, and around them where they may be part of a run.
fn run_from(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let in_run = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/');
    let mut at = from + SHORTEST_RUN - 1;
    while let Some(byte) = bytes.get(at) {
        if in_run(byte) {
            let start = bytes
                .get(from..at)?
                .iter()
                .rposition(|byte| !in_run(byte))
                .map_or(from, |gap| from + gap + 1);
            let length = bytes.get(start..)?.iter().take(LONG_RUN).take_while(|byte| in_run(byte)).count();
            let run = bytes.get(start..start + length)?;
            if length >= LONG_RUN || length >= SHORTEST_RUN && run.iter().any(u8::is_ascii_digit) {
                return Some(start);
            }
            at = start + length;
        }
        at += SHORTEST_RUN;
    }
    None
}

/// Replaces the matches that `with` returns a replacement for. Behind a replacement the search begins anew, because the
/// label is a boundary of words for the secret that was glued to the last one.
fn replace<'t>(rule: &Regex, text: &'t str, with: impl Fn(&Captures<'_>) -> Option<String>) -> Cow<'t, str> {
    let mut changed = String::new();
    let mut rest = text;
    let mut at = 0;
    while let Some(found) = rule.captures_at(rest, at) {
        let Some(all) = found.get(0) else { break };
        at = all.end();
        if let Some(replacement) = with(&found) {
            changed.push_str(rest.get(..all.start()).unwrap_or_default());
            changed.push_str(&replacement);
            rest = rest.get(at..).unwrap_or_default();
            at = 0;
        }
    }
    if changed.is_empty() {
        return Cow::Borrowed(text);
    }
    changed.push_str(rest);
    Cow::Owned(changed)
}

fn group<'t>(found: &Captures<'t>, index: usize) -> &'t str {
    found.get(index).as_ref().map_or("", Match::as_str)
}

fn redact_address(found: &Captures<'_>) -> Option<String> {
    let value = group(found, 2);
    let left = is_label(value) || is_reference(value) || is_placeholder(value) || is_about(value);
    (!left).then(|| format!("{}{}@", group(found, 1), label("password")))
}

fn redact_bearer(found: &Captures<'_>) -> Option<String> {
    let value = group(found, 2);
    let prose = PROSE.contains(&value.trim_end_matches(['.', ':', '!', '?']));
    let parameter = value.ends_with('=') && is_words(value);
    let left = prose || parameter || value.starts_with(MARK) || is_reference(value) || is_placeholder(value);
    (!left).then(|| format!("{}{}", group(found, 1), label("bearer_token")))
}

fn redact_user(found: &Captures<'_>) -> Option<String> {
    let value = group(found, 2);
    let left = is_label(value) || is_reference(value) || is_words(value);
    (!left).then(|| format!("{}{}", group(found, 1), label("password")))
}

fn redact_prefixed(found: &Captures<'_>) -> Option<String> {
    let row = (0..PREFIXES.len()).find(|row| found.get(2 * row + 1).is_some())?;
    let (kind, ..) = PREFIXES.get(row)?;
    let (kept, secret) = (group(found, 2 * row + 1), group(found, 2 * row + 2));
    // Names of classes and packages are in lower case.
    let words = !secret.contains(char::is_uppercase) && is_words(secret);
    (!words && !is_reference(secret)).then(|| format!("{kept}{}", label(kind)))
}

fn redact_blob(found: &Captures<'_>) -> Option<String> {
    let (before, run) = (group(found, 1), group(found, 2));
    let public =
        before.ends_with(',') || before.ends_with(' ') || !before.is_empty() && HASHES.contains(&run.len());
    (!public && is_blob(run)).then(|| format!("{before}{}", label("base64_blob")))
}

/// Tells base64 from paths (many slashes), hashes (hex), long words (one case, no digits) and long names (few digits).
fn is_blob(run: &str) -> bool {
    let count = |wanted: fn(&u8) -> bool| run.bytes().filter(wanted).count();
    let hex = run.strip_prefix("0x").unwrap_or(run).bytes().all(|byte| byte.is_ascii_hexdigit());
    // Of random characters two out of three differ in kind from the one before, of words in a name two out of five.
    let kind = |byte: u8| (byte.is_ascii_uppercase(), byte.is_ascii_lowercase(), byte.is_ascii_digit());
    let changes =
        run.as_bytes().windows(2).filter(|pair| matches!(pair, [a, b] if kind(*a) != kind(*b))).count();
    let digits = count(u8::is_ascii_digit);
    let name = digits * 16 <= run.len() && changes * 2 < run.len();
    // Random base64 has one slash in 64 characters; a path has one in eight.
    let path = count(|byte| *byte == b'/') > 1 + run.len() / 32;
    count(u8::is_ascii_uppercase) > 0
        && count(u8::is_ascii_lowercase) > 0
        && digits > 0
        && !hex
        && !name
        && !path
}

/// Whether a value is exactly one label, left by an earlier rule or pass.
fn is_label(value: &str) -> bool {
    value.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(']')).is_some_and(|kind| {
        kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    })
}

#[cfg(test)]
mod tests;
