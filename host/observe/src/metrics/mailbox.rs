//! Replies out of band.

use super::closed::{Closed as _, closed};
use super::family::{Family, Kind, Label};
use super::number::Watched;
use super::page::Page;
use super::registry::Source;

closed! {
    /// The state of a turn in the mailbox.
    Mail {
        /// It waits for its reply.
        Waiting = "waiting",
        /// It waits for its turn in the chat.
        InLine = "in-line",
        /// It ended without a reply, and one may still come.
        Unanswered = "unanswered",
        /// Its reply came after it had ended.
        Late = "late",
    }
}

static TURNS: Family = Family {
    name: "talaria_mailbox_turns",
    kind: Kind::Gauge,
    labels: &[Label::of::<Mail>("state")],
    help: "Turns that the mailbox knows, by what they are to it",
    question: "Do replies come, and in time?",
};
static LETTERS: Family = Family {
    name: "talaria_mailbox_letters_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Bytes of the callbacks that are kept; at most 256 MiB",
    question: "Do upstreams post replies that nobody expects?",
};

/// The mailbox.
#[derive(Default)]
pub struct Mailbox(Watched<Now>);

/// The mailbox at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Now {
    /// Turns that it knows, by state.
    pub turns: Vec<(Mail, usize)>,
    /// Bytes of the callbacks that it stores.
    pub bytes: usize,
}

// === impl Mailbox ===

impl Mailbox {
    /// Sets the function that reads the mailbox; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.0.set(read);
    }
}

impl Source for Mailbox {
    fn title(&self) -> &'static str {
        "Mailbox"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&TURNS, &LETTERS]
    }

    fn write(&self, page: &mut Page) {
        let now = self.0.read();
        let mut samples = page.family(&TURNS);
        for (state, count) in now.iter().flat_map(|now| &now.turns) {
            samples.value(&[Mail::NAMES.get(state.index()).copied().unwrap_or_default()], count);
        }
        let mut samples = page.family(&LETTERS);
        now.iter().for_each(|now| samples.value(&[], now.bytes));
    }
}
