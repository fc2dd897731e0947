//! Replaces what looks like a secret with `[REDACTED:kind]`, by rules.
//!
//! | rule | kind |
//! |---|---|
//! | PEM private keys, also incomplete or with line breaks written as `\n` | `private_key` |
//! | the password in `scheme://user:password@` | `password` |
//! | the value in `NAME_API_KEY=`, `_TOKEN=`, `_KEY=`, `_SECRET=`, `_PASSWORD=`, `_CREDENTIALS=`, any case | `api_key`, `token`, … |
//! | the value after `Bearer` | `bearer_token` |
//! | `sk-`, `ghp_`, `ghs_` (and the other `gh?_`), `github_pat_`, `AKIA`, `cfut_`, `mol_pk_`, `ctx7_`, and the keys of Google (`AIza`), Hugging Face (`hf_`), Groq (`gsk_`), NVIDIA (`nvapi-`), GitLab (`glpat-`), Slack (`xox?-`) | `sk_token`, … |
//! | JSON web tokens | `jwt` |
//! | base64 from 40 characters, with upper case, lower case and digits, few slashes, not hex | `base64_blob` |
//!
//! Values of less than 8 characters are left: they are placeholders far more often than secrets. Names are left too, because
//! `DB_PASSWORD=[REDACTED:password]` tells an operator where to look.
//!
//! The rules run one after the other, each on the output of the one before, until nothing changes: scrubbing is idempotent.
//! Except for private keys, no match goes beyond a line, so [`TextStream`](crate::TextStream) can work line by line.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Match, Regex};

/// Shorter values are left.
const SHORTEST: usize = 8;

const MARK: &str = "[REDACTED:";
pub(crate) const PRIVATE_KEY: &str = "[REDACTED:private_key]";

/// All kinds, so that a known secret that is part of a label can be ignored.
pub(crate) const KINDS: [&str; 24] = [
    "private_key",
    "secret",
    "password",
    "api_key",
    "token",
    "key",
    "credentials",
    "bearer_token",
    "sk_token",
    "github_pat",
    "github_server_token",
    "github_token",
    "aws_access_key",
    "cf_token",
    "mol_pk",
    "ctx7_token",
    "google_api_key",
    "hf_token",
    "groq_token",
    "nvidia_token",
    "gitlab_token",
    "slack_token",
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

/// What may be between the lines of a private key: white space, or a line break escaped as in JSON.
const PEM_GAP: &str = r"(?:\s|\\+[nrt])*";
const PEM_BEGIN: &str = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
/// A header is a whole line, however long: another rule may shorten its value, and whether this is a private key must not
/// depend on that.
const PEM_HEADERS: &str = r"(?:(?:\s|\\+[nrt])*(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\n]*)*";

/// A name that marks its value as a secret.
const NAME: &str = r"[A-Za-z][A-Za-z0-9_]*_(?i-u:TOKEN|KEY|SECRET|PASSWORD|CREDENTIALS)";

/// The characters that end a value without quotes, as the inside of a character class: white space, and scripts that are
/// written without spaces.
const ENDS: &str = r"\s\x{E00}-\x{10FFFF}";

/// The most rounds of the rules over a text that they change. Two rounds settle every known case; the bound keeps any other
/// from looping.
const ROUNDS: usize = 8;

static RULES: LazyLock<Option<Rules>> = LazyLock::new(|| Rules::compile().ok());

struct Rules {
    /// Matches wherever any of the others could; most texts do not match it.
    any: Regex,
    private_key: Regex,
    /// An incomplete private key, from its first dash to the end of the text.
    open_key: Regex,
    password: Regex,
    /// A name that marks its value as a secret, up to the value.
    assignment: Regex,
    bearer: Regex,
    token: Regex,
    blob: Regex,
}

/// Removes what looks like a secret. Borrows if there is nothing to remove, which costs a few microseconds per KiB.
///
/// ```
/// assert_eq!(talaria_redact::shapes("X_TOKEN=Bearer zzzzzzzzzz"), "X_TOKEN=[REDACTED:token]");
/// ```
pub fn shapes(text: &str) -> Cow<'_, str> {
    scrub_rest(scrub_private_keys(Cow::Borrowed(text)))
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
        let pem_end = format!(
            "{PEM_GAP}[A-Za-z0-9+/=]{{0,80}}{PEM_GAP}-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----"
        );
        let pem_cut = format!(r"{PEM_GAP}[A-Za-z0-9+/=]{{1,15}}\z");
        let pem_lines = format!("(?:{PEM_GAP}[A-Za-z0-9+/=]{{16,}})+");
        let line = "[A-Za-z0-9+/=]";
        let open_key = format!(
            "(?:-----BEGIN [A-Z0-9 ]*|{PEM_BEGIN}{PEM_HEADERS}(?:{PEM_GAP}{line}{{16,}})*{PEM_GAP}{line}{{0,80}}{PEM_GAP}(?:-{{1,5}}|-----E|-----EN|-----END[A-Z0-9 ]*-{{0,4}})?)$"
        );
        Ok(Self {
            open_key: Regex::new(&open_key)?,
            any: Regex::new(concat!(
                r"://[^\s/@]*:[^\s/]{8,}@",
                r"|_(?i-u:TOKEN|KEY|SECRET|PASSWORD|CREDENTIALS)[ \t]*=",
                r"|(?i-u:bearer)[ \t]",
                r"|sk-[A-Za-z0-9_-]{16}|gh[opusr]_[A-Za-z0-9]{20}|github_pat_|AKIA[A-Z0-9]{16}|cfut_|mol_pk_|ctx7_|eyJ",
                r"|AIza[A-Za-z0-9_-]{35}|hf_[A-Za-z0-9]{30}|gsk_[A-Za-z0-9]{40}|nvapi-|glpat-|xox[abeoprs]-",
                r"|[A-Za-z0-9+/]{40}",
            ))?,
            private_key: Regex::new(&format!(
                "{PEM_BEGIN}{PEM_HEADERS}(?:{pem_lines}(?:{pem_end}|{pem_cut})?|{pem_end})"
            ))?,
            password: Regex::new(&format!(
                r#"([A-Za-z][A-Za-z0-9+.-]{{0,30}}://[^:/@?#\[\]"'<>{ENDS}]{{0,128}}:)([^/"'<>{ENDS}]{{8,}})@"#
            ))?,
            assignment: Regex::new(&format!(r"{NAME}[ \t]*=[ \t]*"))?,
            bearer: Regex::new(&format!(r#"((?-u:\b)(?i-u:bearer)[ \t]+)([^"'<>,;){{}}\]{ENDS}]{{8,}})"#))?,
            token: Regex::new(concat!(
                r"(?-u:\b)sk-[A-Za-z0-9_-]{16,}",
                r"|gh[opusr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{22,}",
                r"|(?-u:\b)AKIA[A-Z0-9]{16}(?-u:\b)",
                r"|(?-u:\b)(?:cfut_[A-Za-z0-9]{32,}|mol_pk_[A-Za-z0-9]{20,}|ctx7_[A-Za-z0-9]{8,})",
                r"|(?-u:\b)(?:AIza[A-Za-z0-9_-]{35,}|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,})",
                r"|(?-u:\b)(?:nvapi-[A-Za-z0-9_-]{40,}|glpat-[A-Za-z0-9_-]{20,}|xox[abeoprs]-[A-Za-z0-9-]{20,})",
                r"|(?-u:\b)eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){2,4}",
            ))?,
            blob: Regex::new(r"[A-Za-z0-9+/]{40,}={0,2}")?,
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
        if !self.any.is_match(text) {
            return Cow::Borrowed(text);
        }
        let text = replace(&self.password, text, redact_password);
        let text = rewrite(text, |text| self.redact_assignments(text));
        let text = rewrite(text, |text| replace(&self.bearer, text, redact_bearer));
        let text = self.redact_tokens(text);
        rewrite(text, |text| {
            replace(&self.blob, text, |found| is_blob(whole(found)).then(|| label("base64_blob")))
        })
    }

    /// Every name counts, also one inside the value of another: a quote that was never closed, or a name without a
    /// value, must not hide the secret behind it.
    fn redact_assignments<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut changed = String::new();
        let mut copied = 0;
        let mut run = 0..0;
        for name in self.assignment.find_iter(text) {
            let place = value_at(text, name.end(), &mut run);
            let value = text.get(place.clone()).unwrap_or_default();
            if value.chars().nth(SHORTEST - 1).is_none() || is_label(value) || place.end <= copied {
                continue;
            }
            // Of one that begins inside the last, what is behind it; what ended the last stays, or it would end
            // elsewhere the next time.
            let ended = text.get(copied..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
            let start = if place.start < copied { copied + ended } else { place.start };
            changed.push_str(text.get(copied..start).unwrap_or_default());
            if start < place.end {
                changed.push_str(&label(kind_of(name.as_str().trim_end_matches([' ', '\t', '=']))));
            }
            copied = start.max(place.end);
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        changed.push_str(text.get(copied..).unwrap_or_default());
        Cow::Owned(changed)
    }

    /// Until nothing changes: a token taken out is a word boundary for the one that was glued to it.
    fn redact_tokens<'a>(&self, mut text: Cow<'a, str>) -> Cow<'a, str> {
        while self.token.is_match(&text) {
            text = rewrite(text, |text| {
                replace(&self.token, text, |found| Some(label(token_kind(whole(found)))))
            });
        }
        text
    }
}

/// Replaces the matches that `with` returns a replacement for.
fn replace<'t>(rule: &Regex, text: &'t str, with: impl Fn(&Captures<'_>) -> Option<String>) -> Cow<'t, str> {
    let mut changed = String::new();
    let mut copied = 0;
    for found in rule.captures_iter(text) {
        let (Some(all), Some(replacement)) = (found.get(0), with(&found)) else { continue };
        changed.push_str(text.get(copied..all.start()).unwrap_or_default());
        changed.push_str(&replacement);
        copied = all.end();
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    changed.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(changed)
}

fn whole<'t>(found: &Captures<'t>) -> &'t str {
    group(found, 0)
}

fn group<'t>(found: &Captures<'t>, index: usize) -> &'t str {
    found.get(index).as_ref().map_or("", Match::as_str)
}

fn redact_password(found: &Captures<'_>) -> Option<String> {
    let value = group(found, 2);
    (!is_label(value)).then(|| format!("{}{}@", group(found, 1), label("password")))
}

/// The kind of secret that a name stands for.
fn kind_of(name: &str) -> &'static str {
    let name = name.to_ascii_lowercase();
    let kinds = ["api_key", "token", "key", "secret", "password", "credentials"];
    kinds.into_iter().find(|kind| name.ends_with(kind)).unwrap_or("secret")
}

/// Returns the value that begins at `at`, without its quotes. A quoted value ends at the end of its line at the latest, any
/// other at a quote or a [delimiter](is_delimiter).
///
/// `run` is the last value without quotes. Names in it share its end, which is therefore searched for only once.
fn value_at(text: &str, at: usize, run: &mut Range<usize>) -> Range<usize> {
    let rest = text.get(at..).unwrap_or_default();
    for (open, quote) in [("\\\"", '"'), ("\"", '"'), ("'", '\'')] {
        let Some(inside) = rest.strip_prefix(open) else { continue };
        let value = inside.split([quote, '\n']).next().unwrap_or(inside);
        // The backslash of an escaped closing quote stays with the quote.
        let value = if quote == '"' { value.strip_suffix('\\').unwrap_or(value) } else { value };
        let start = at + open.len();
        return start..start + value.len();
    }
    let mut run_at = |at: usize| {
        if !run.contains(&at) {
            let rest = text.get(at..).unwrap_or_default();
            let length = rest.find(|char| char == '"' || is_delimiter(char)).unwrap_or(rest.len());
            *run = at..at + length;
        }
        at..run.end
    };
    let word = run_at(at);
    let scheme = text.get(word.clone()).unwrap_or_default();
    if ["Bearer", "Basic", "Token"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        let rest = text.get(word.end..).unwrap_or_default();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        if blank > 0 {
            return at..run_at(word.end + blank).end.max(word.end);
        }
    }
    word
}

fn redact_bearer(found: &Captures<'_>) -> Option<String> {
    let value = group(found, 2);
    let prose = PROSE.contains(&value.trim_end_matches(['.', ':', '!', '?']));
    (!prose && !value.starts_with(MARK)).then(|| format!("{}{}", group(found, 1), label("bearer_token")))
}

fn token_kind(token: &str) -> &'static str {
    let kinds = [
        ("sk-", "sk_token"),
        ("ghp_", "github_pat"),
        ("github_pat_", "github_pat"),
        ("ghs_", "github_server_token"),
        ("gh", "github_token"),
        ("AKIA", "aws_access_key"),
        ("cfut_", "cf_token"),
        ("mol_pk_", "mol_pk"),
        ("ctx7_", "ctx7_token"),
        ("AIza", "google_api_key"),
        ("hf_", "hf_token"),
        ("gsk_", "groq_token"),
        ("nvapi-", "nvidia_token"),
        ("glpat-", "gitlab_token"),
        ("xox", "slack_token"),
        ("eyJ", "jwt"),
    ];
    kinds.into_iter().find(|(prefix, _)| token.starts_with(prefix)).map_or("token", |(_, kind)| kind)
}

/// Tells base64 from paths (many slashes), hashes (hex) and long words (one case, no digits).
fn is_blob(run: &str) -> bool {
    let has = |wanted: fn(&u8) -> bool| run.bytes().any(|byte| wanted(&byte));
    // Random base64 has one slash in 64 characters; a path has one in eight.
    let slashes = run.bytes().filter(|byte| *byte == b'/').count();
    has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && !run.bytes().all(|byte| byte.is_ascii_hexdigit())
        && slashes <= 1 + run.len() / 32
}

/// Whether a value is exactly one label, left by an earlier rule or pass.
fn is_label(value: &str) -> bool {
    value.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(']')).is_some_and(|kind| {
        kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    })
}

#[cfg(test)]
mod tests;
