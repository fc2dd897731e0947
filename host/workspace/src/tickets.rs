//! Tickets: the names by which the agent tells its tools which conversation calls.
//!
//! An agent has one connection to its tools for all its conversations, and a call does not say which of them makes it. So the
//! prompt of each turn contains a ticket, which the agent gives back with a delegation.
//!
//! A ticket is a keyed hash of the caller and the context: it cannot be guessed, nobody has to remember it, and it is the
//! same in every turn of a conversation, so that providers can cache the prompt. It is valid only while a turn of its
//! conversation runs, see [`Delegations`](crate::delegations::Delegations).

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use talaria_turns::{ContextId, Principal};

/// Bytes of a ticket: 80 bits are beyond guessing at the rate of calls that the tools allow.
const BYTES: usize = 10;

/// Makes tickets.
#[derive(Debug)]
pub(crate) struct Tickets(SecretString);

// === impl Tickets ===

impl Tickets {
    /// Makes tickets with this key.
    pub(crate) fn new(key: SecretString) -> Self {
        Self(key)
    }

    /// The ticket of a conversation.
    pub(crate) fn of(&self, owner: &Principal, context: &ContextId) -> String {
        let mut hash = Sha256::new();
        // The hash is cut short, so that it cannot be extended to that of a longer input.
        for part in [self.0.expose_secret(), owner.name().unwrap_or_default(), context.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the prompt of a turn says about its ticket.
    pub(crate) fn prompt(&self, owner: &Principal, context: &ContextId) -> String {
        format!(
            "\n\n## The ticket of this conversation\nGive the argument `ticket` the value `{}` whenever you delegate, so \
             that the answer comes back to this conversation.",
            self.of(owner, context),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_belongs_to_one_conversation_and_needs_the_key() {
        let id = |text: &str| text.parse::<ContextId>().unwrap();
        let tickets = Tickets::new("key".into());
        let ticket = tickets.of(&Principal::named("ann"), &id("c"));
        assert_eq!(ticket.len(), 2 * BYTES);
        assert_eq!(tickets.of(&Principal::named("ann"), &id("c")), ticket, "every turn has the same");
        for (key, owner, context) in [
            ("key", "ann", "d"),
            ("key", "ben", "c"),
            ("key", "an", "nc"),
            ("yek", "ann", "c"),
            ("keya", "nn", "c"),
        ] {
            let other = Tickets::new(key.into()).of(&Principal::named(owner), &id(context));
            assert_ne!(other, ticket, "{key} {owner} {context}");
        }
    }
}
