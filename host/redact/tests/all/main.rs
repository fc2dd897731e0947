//! What redaction promises about real texts: keys of many issuers are masked in full, ordinary code is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod key_shapes;
mod named_values;
mod ordinary_code;

/// Characters that look random and are the same each time.
fn random(alphabet: &str, length: usize, seed: u64) -> String {
    let alphabet = alphabet.as_bytes();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap()
    };
    (0..length).map(|_| char::from(alphabet[next() % alphabet.len()])).collect()
}

/// Fails if 8 characters in a row of the secret are left.
fn assert_masked(text: &str, secret: &str) {
    let redacted = talaria_redact::shapes(text);
    let mut parts = redacted.split("[REDACTED:");
    let mut left = parts.next().unwrap().to_owned();
    left.extend(parts.map(|part| part.split_once(']').unwrap().1));
    let chars: Vec<char> = secret.chars().collect();
    for run in chars.windows(8) {
        let run: String = run.iter().collect();
        assert!(!left.contains(&run), "{run} of the secret is left:\n  {text}\n  {redacted}");
    }
    assert!(redacted.contains("[REDACTED:"), "{redacted}");
    assert_eq!(talaria_redact::shapes(&redacted), redacted, "a second pass changes it");
}
