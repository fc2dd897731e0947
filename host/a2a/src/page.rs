//! Page tokens: a place in a list, as text that nobody should read.
//!
//! Base64 of the time and the id of the last task listed, so it stays right while tasks come and go, and needs no
//! memory here. A caller who makes one up gets tasks of its own from some place on, and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use talaria_turns::{Place, Timestamp};

/// A place as a token.
pub(crate) fn token(place: &Place) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}.{}", place.at.millis(), place.task))
}

/// The place that a token means; none where it is not one of ours.
pub(crate) fn place(token: &str) -> Option<Place> {
    // Longer than any that we make: not worth decoding.
    if token.len() > 512 {
        return None;
    }
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (at, task) = text.split_once('.')?;
    if at.is_empty() || !at.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Place { at: Timestamp::from_millis(at.parse().ok()?), task: task.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use talaria_turns::TaskId;

    use super::*;

    #[test]
    fn a_place_comes_back_as_it_was() {
        for (at, task) in [(0, TaskId::fresh().to_string()), (u64::MAX, "a.b".into()), (1, "x".repeat(256))] {
            let written = Place { at: Timestamp::from_millis(at), task: task.parse().unwrap() };
            assert_eq!(place(&token(&written)), Some(written));
        }
    }

    #[test]
    fn anything_else_is_none() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for bad in [
            "x",
            "%%%",
            "AAAA",
            &encode("12"),
            &encode(".t"),
            &encode("1."),
            &encode("-1.t"),
            &encode("+1.t"),
        ] {
            assert_eq!(place(bad), None, "{bad}");
        }
        assert_eq!(place(&"A".repeat(10_000)), None);
        assert_eq!(place(&encode(&format!("{}.t", u128::MAX))), None);
    }
}
