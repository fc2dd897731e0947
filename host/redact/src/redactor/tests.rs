//! Known values are removed wherever they are.

use proptest::prelude::*;

use super::{Cow, Redactor};
use crate::stream::tests::{KNOWN, texts};

#[test]
fn known_values_are_removed_wherever_they_are() {
    let redactor =
        Redactor::new(["correct horse", "correct horse battery", " hunter2hunter2\n", "short", "REDACTED"]);
    for (text, expected) in [
        ("a hunter2hunter2.", "a [REDACTED:secret]."),
        ("xhunter2hunter2hunter2hunter2y", "x[REDACTED:secret]y"),
        ("correct horse battery correct horse", "[REDACTED:secret] [REDACTED:secret]"),
        ("X_TOKEN=hunter2hunter2", "X_TOKEN=[REDACTED:secret]"),
        ("X_TOKEN=hunter2hunter2more", "X_TOKEN=[REDACTED:token]"),
        ("short REDACTED correct", "short REDACTED correct"),
    ] {
        assert_eq!(redactor.all(text), expected);
        assert_eq!(redactor.all(expected), expected);
    }
}

#[test]
fn a_value_is_removed_from_the_moment_it_is_learned() {
    let redactor = Redactor::default();
    let mut text = String::new();
    for number in 0..3 {
        let value = format!("hunter2hunter{number}");
        text.push_str(&format!("{value} "));
        assert!(redactor.values(&text).contains(&value), "not known yet");
        redactor.clone().learn([&value]);
        assert_eq!(redactor.values(&text), "[REDACTED:secret] ".repeat(number + 1));
    }
}

#[test]
fn ordinary_text_is_borrowed() {
    let redactor = Redactor::new(["hunter2hunter2"]);
    assert!(matches!(redactor.all("nothing to see"), Cow::Borrowed("nothing to see")));
}

#[test]
fn debug_shows_no_values() {
    assert_eq!(format!("{:?}", Redactor::new(["hunter2hunter2", "short"])), "Redactor(1 known)");
}

proptest! {
    #[test]
    fn no_known_value_is_left_and_redaction_is_idempotent(text in texts()) {
        let redactor = Redactor::new(KNOWN);
        let once = redactor.all(&text).into_owned();
        for value in KNOWN {
            prop_assert!(!once.contains(value), "{} is left in {}", value, once);
        }
        prop_assert_eq!(redactor.all(&once), once.as_str());
    }
}
