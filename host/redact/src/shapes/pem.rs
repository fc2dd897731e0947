//! Private keys between `-----BEGIN … PRIVATE KEY-----` and `-----END …`: PKCS, OpenSSH, PGP. Also incomplete ones, and ones
//! whose line breaks are written as `\n`. The only shape that goes beyond a line.

use regex::Regex;

/// What may be between the lines of a private key: white space, or a line break escaped as in JSON.
const GAP: &str = r"(?:\s|\\+[nrt])*";
const BEGIN: &str = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
/// A header is a whole line, however long: another rule may shorten its value, and whether this is a private key must not
/// depend on that.
const HEADERS: &str = r"(?:(?:\s|\\+[nrt])*(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\n]*)*";
const LINE: &str = "[A-Za-z0-9+/=]";

/// A private key.
pub(super) fn key() -> Result<Regex, regex::Error> {
    let end = format!("{GAP}{LINE}{{0,80}}{GAP}-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----");
    let cut = format!(r"{GAP}{LINE}{{1,15}}\z");
    let lines = format!("(?:{GAP}{LINE}{{16,}})+");
    Regex::new(&format!("{BEGIN}{HEADERS}(?:{lines}(?:{end}|{cut})?|{end})"))
}

/// A private key that is not over yet, from its first dash to the end of the text.
pub(super) fn open_key() -> Result<Regex, regex::Error> {
    Regex::new(&format!(
        "(?:-----BEGIN [A-Z0-9 ]*|{BEGIN}{HEADERS}(?:{GAP}{LINE}{{16,}})*{GAP}{LINE}{{0,80}}{GAP}(?:-{{1,5}}|-----E|-----EN|-----END[A-Z0-9 ]*-{{0,4}})?)$"
    ))
}
