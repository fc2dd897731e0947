//! The forms of a value: how programs write the same secret.
//!
//! | form | where it comes from |
//! |---|---|
//! | the value itself | headers, texts |
//! | base64 and base64url, at each of the three offsets | `Authorization: Basic`, file parts, tokens inside larger blobs |
//! | hex, in both cases | dumps |
//! | percent-encoded: all, or all but the unreserved characters | URLs, forms |
//! | escaped for JSON, once and twice | JSON in a text, JSON in JSON |
//!
//! The middle of a base64 text depends only on the value, whatever comes before and after it. Only these characters are
//! searched for: at most one character on each side, which carries some bits of the value, remains.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What JavaScript's `encodeURIComponent` encodes.
const COMPONENT: &AsciiSet = &RESERVED.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');
/// What a browser encodes in a path or a query.
const QUERY: &AsciiSet =
    &percent_encoding::CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'%');

/// Returns all forms of a value, the value itself first, without repetitions.
pub(crate) fn of(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    for offset in 0..3 {
        forms.push(base64_core(&STANDARD_NO_PAD, value, offset));
        forms.push(base64_core(&URL_SAFE_NO_PAD, value, offset));
    }
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push(hex.to_ascii_uppercase());
    forms.push(hex);
    for set in [NON_ALPHANUMERIC, RESERVED, COMPONENT, QUERY] {
        let encoded = utf8_percent_encode(value, set).to_string();
        forms.push(encoded.replace("%20", "+"));
        forms.push(lower_escapes(&encoded));
        forms.push(encoded);
    }
    let once = json_escaped(value);
    forms.push(json_escaped(&once));
    forms.push(once.replace('/', "\\/"));
    forms.push(once);
    let mut seen = std::collections::BTreeSet::new();
    forms.retain(|form| seen.insert(form.clone()));
    forms
}

/// The characters of a base64 text that depend on the value alone, if the value starts `offset` bytes after a multiple of
/// three.
fn base64_core(engine: &impl Engine, value: &str, offset: usize) -> String {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value.as_bytes());
    let encoded = engine.encode(&bytes);
    // A character carries six bits.
    let (first, last) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    encoded.get(first..last).unwrap_or_default().to_owned()
}

/// Writes `%2F` as `%2f`.
fn lower_escapes(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut lower = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        lower.extend(["%", &digits.to_ascii_lowercase(), rest]);
    }
    lower
}

/// Escapes a text as inside a JSON string.
fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const VALUE: &str = "s3cr3t/va+lue \"?\\";

    fn finds(text: &str) -> bool {
        of(VALUE).iter().any(|form| text.contains(form.as_str()))
    }

    #[test]
    fn a_value_is_found_in_base64_whatever_surrounds_it() {
        for before in 0..7 {
            for after in 0..4 {
                let text = format!("{}{VALUE}{}", "u".repeat(before), "w".repeat(after));
                assert!(finds(&STANDARD.encode(&text)), "{before} before, {after} after");
                assert!(finds(&URL_SAFE.encode(&text)), "{before} before, {after} after");
            }
        }
    }

    #[test]
    fn a_value_is_found_in_each_usual_encoding() {
        let hex = VALUE.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
        let once = serde_json::to_string(VALUE).unwrap();
        for text in [
            VALUE.to_owned(),
            hex.to_ascii_lowercase(),
            hex,
            "s3cr3t%2Fva%2Blue%20%22%3F%5C".to_owned(),
            "s3cr3t%2fva%2blue%20%22%3f%5c".to_owned(),
            "s3cr3t%2Fva%2Blue+%22%3F%5C".to_owned(),
            serde_json::to_string(&once).unwrap(),
            once,
        ] {
            assert!(finds(&text), "{text}");
        }
        assert!(!finds("s3cr3t/va+lue"), "a part of the value is not the value");
    }

    #[test]
    fn no_form_is_shorter_than_its_value() {
        for value in ["12345678", "/+/+/+/+", "ääää"] {
            assert!(of(value).iter().all(|form| form.len() >= value.len()), "{:?}", of(value));
        }
    }
}
