//! The redactor masks everything that is or looks like a secret, whatever surrounds it.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use talaria_redact::{Redactor, shapes};

const KNOWN: [&str; 3] = ["correct horse battery", "hunter2hunter2", "日本 の 秘密 です"];

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new(KNOWN));

fuzz_target!(|text: &str| {
    let once = shapes(text).into_owned();
    assert_eq!(shapes(&once), once, "twice is once");
    // The longest label has 30 bytes and replaces at least 8.
    assert!(once.len() <= 4 * text.len(), "{} bytes became {}", text.len(), once.len());

    // Only some each time, at different places: all of them would leave time for few texts.
    for (at, (secret, around)) in planted(text).into_iter().enumerate().skip(text.len() % 4).step_by(4) {
        let planted = match (text.len() / 4 + at) % 4 {
            0 => format!("{text} {around}"),
            1 => format!("{around} {text}"),
            2 => format!("{text}\n{around}\n{text}"),
            _ => format!("{text}\t{around}\t{text}"),
        };
        let out = shapes(&planted);
        assert!(text.contains(&secret) || !out.contains(&secret), "{secret} is still in {out}");
    }
    let known = KNOWN[text.len() % KNOWN.len()];
    let out = REDACTOR.all(&format!("{text}{known}{text}")).into_owned();
    assert!(!out.contains(known), "{known} is still in {out}");
});

/// Makes secrets of every shape from the text's bytes. Returns the part that must be masked, and the whole.
fn planted(text: &str) -> Vec<(String, String)> {
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let of = |letters: &'static [u8], from: usize, length: usize| -> String {
        let seed = text.bytes().chain([from as u8]).cycle().skip(from);
        seed.take(length).map(|byte| char::from(letters[usize::from(byte) % letters.len()])).collect()
    };
    let any = |from, length| of(letters, from, length);
    let whole = |secret: String| (secret.clone(), secret);
    let value = format!("7g{}", any(9, 12));
    vec![
        // With a digit, or letters may read like words.
        whole(format!("sk-proj-7{}", any(0, 20))),
        whole(format!("ghp_{}", any(1, 36))),
        whole(format!("ghs_{}", any(2, 36))),
        whole(format!("github_pat_{}", any(3, 40))),
        whole(format!("AKIA{}", of(&letters[26..], 4, 16))),
        whole(format!("cfut_{}", any(5, 32))),
        whole(format!("mol_pk_{}", any(6, 20))),
        whole(format!("ctx7_{}", any(7, 12))),
        whole(format!("sk_live_7{}", any(0, 24))),
        whole(format!("npm_7{}", any(1, 36))),
        whole(format!("hvs.7{}", any(2, 24))),
        whole(format!("eyJ7{}.{}.{}", any(0, 17), any(1, 12), any(2, 12))),
        // A blob has all three kinds of characters, mixed.
        whole((8..14).map(|from| format!("Z9z{}", any(from, 5))).collect()),
        (value.clone(), format!("X_API_KEY={value}")),
        (value.clone(), format!("{{\"token\": \"{value}\"}}")),
        (value.clone(), format!("password: {value}")),
        (value.clone(), format!("X-Api-Key: {value}")),
        (value.clone(), format!("GET /?token={value}&x=1")),
        (value.clone(), format!("DB_PASSWORD=\"{value}\"")),
        (value.clone(), format!("Authorization: Bearer {value}")),
        (value.clone(), format!("postgres://app:{value}@db/x")),
        (any(10, 64), format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", any(10, 64))),
    ]
}
