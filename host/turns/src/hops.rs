//! The number of hosts that a message passed through, so that agents which pass messages on to each other in a circle are
//! stopped.
//!
//! An executor that passes a message on to another host counts one more ([`keys::HOPS`]); each host rejects a message that
//! passed through too many, before anything is written. A count is enough: a message in a circle passes through some host
//! again and again, and a list of hosts would need a name for each host that no other host has.
//! A circle with an agent in it that begins messages of its own is not seen; the shares of callers bound it.

use crate::keys::HOPS;
use crate::model::Message;

/// Why a message was rejected for the hosts that it passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HopsError {
    /// It is not a whole number of at least 0.
    #[error("message.metadata[\"{HOPS}\"] must be the number of hosts that the message passed through")]
    Malformed,
    /// It passed through too many.
    #[error(
        "the message has passed through {hops} hosts, and {limit} are the most: agents pass it on to each other in a circle; \
         if they do not, raise `limits.hops`"
    )]
    TooMany {
        /// The hosts that it passed through.
        hops: u64,
        /// The bound.
        limit: u32,
    },
}

/// Checks that a message did not pass through too many hosts.
pub(crate) fn check(message: &Message, limit: u32) -> Result<(), HopsError> {
    let Some(value) = message.metadata.as_ref().and_then(|metadata| metadata.get(HOPS)) else {
        return Ok(());
    };
    // Agents that store metadata as a protobuf struct write whole numbers as fractions.
    let hops =
        value.as_f64().filter(|hops| *hops >= 0.0 && hops.fract() == 0.0).ok_or(HopsError::Malformed)?;
    if hops <= f64::from(limit) {
        return Ok(());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and positive; saturates"
    )]
    let hops = hops as u64;
    Err(HopsError::TooMany { hops, limit })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Part;

    #[test]
    fn a_message_is_counted_by_what_it_says() {
        let malformed = Err(HopsError::Malformed);
        for (hops, expected) in [
            (Value::Null, malformed),
            (json!(0), Ok(())),
            (json!(8), Ok(())),
            (json!(8.0), Ok(())),
            (json!(9), Err(HopsError::TooMany { hops: 9, limit: 8 })),
            (json!(1e300), Err(HopsError::TooMany { hops: u64::MAX, limit: 8 })),
            (json!(-1), malformed),
            (json!(0.5), malformed),
            (json!("1"), malformed),
            (json!([]), malformed),
        ] {
            let metadata = json!({ HOPS: hops }).as_object().cloned();
            let message = Message { metadata, ..Message::agent(vec![Part::text("hi")]) };
            assert_eq!(check(&message, 8), expected, "{hops}");
        }
        assert_eq!(check(&Message::agent(vec![Part::text("hi")]), 0), Ok(()));
    }
}
