//! Page tokens: a position in a list, as opaque text.
//!
//! A token is the base64 of the time and the id of the last task listed, so it stays valid while tasks come and go, and the
//! server keeps no state for it. A caller who forges one gets its own tasks from some position on, and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use talaria_turns::{Place, Timestamp};

/// Longer than any token that we issue, so not worth decoding.
const MAX_TOKEN: usize = 512;

/// Encodes a position.
pub(crate) fn encode(place: &Place) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}.{}", place.at.millis(), place.task))
}

/// Decodes a token; `None` if this server did not issue it.
pub(crate) fn decode(token: &str) -> Option<Place> {
    if token.len() > MAX_TOKEN {
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
    fn a_position_survives_the_round_trip() {
        for (at, task) in [(0, TaskId::fresh().to_string()), (u64::MAX, "a.b".into()), (1, "x".repeat(256))] {
            let place = Place { at: Timestamp::from_millis(at), task: task.parse().unwrap() };
            assert_eq!(decode(&encode(&place)), Some(place));
        }
    }

    #[test]
    fn rejects_tokens_that_we_did_not_issue() {
        let base64 = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for bad in [
            "x",
            "%%%",
            "AAAA",
            &base64("12"),
            &base64(".t"),
            &base64("1."),
            &base64("-1.t"),
            &base64("+1.t"),
        ] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(decode(&"A".repeat(10_000)), None);
        assert_eq!(decode(&base64(&format!("{}.t", u128::MAX))), None);
    }
}
