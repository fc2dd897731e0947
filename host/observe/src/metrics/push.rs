//! Push notifications.

use super::closed::closed;
use super::family::{Family, Kind, Label};
use super::number::{Counters, Watched};
use super::page::Page;
use super::registry::Source;

closed! {
    /// The result of an attempt to deliver a push notification.
    Push {
        /// The webhook accepted it.
        Delivered = "delivered",
        /// It failed, and is retried unless this was the last attempt.
        Failed = "failed",
        /// It is not retried: the address may not be called, or the receiver wants no more.
        Refused = "refused",
    }
}

static DELIVERIES: Family = Family {
    name: "talaria_push_deliveries_total",
    kind: Kind::Counter,
    labels: &[Label::of::<Push>("result")],
    help: "Tries to deliver a push notification, and how they ended",
    question: "Do webhooks answer?",
};
static FOLLOWING: Family = Family {
    name: "talaria_push_following",
    kind: Kind::Gauge,
    labels: &[],
    help: "Push configurations whose tasks are followed: tasks under way, and notifications still to be delivered",
    question: "How long is the queue of notifications?",
};
static DELIVERING: Family = Family {
    name: "talaria_push_delivering",
    kind: Kind::Gauge,
    labels: &[],
    help: "Notifications that are being delivered",
    question: "Do slow webhooks use up the room for deliveries?",
};
static GIVEN_UP: Family = Family {
    name: "talaria_push_given_up_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Push configurations that were given up after the last try",
    question: "Did a caller miss an answer?",
};

/// Push notifications.
#[derive(Default)]
pub struct Pushes {
    deliveries: Counters<Push>,
    now: Watched<Now>,
}

/// The queue at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Push configurations that are followed.
    pub following: usize,
    /// Notifications that are being delivered.
    pub delivering: usize,
    /// Those given up since the start.
    pub given_up: u64,
}

// === impl Pushes ===

impl Pushes {
    /// Counts an attempt to deliver a push notification.
    pub fn tried(&self, result: Push) {
        self.deliveries.inc(result);
    }

    /// Sets the function that reads the queue; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.now.set(read);
    }
}

impl Source for Pushes {
    fn title(&self) -> &'static str {
        "Push notifications"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&DELIVERIES, &FOLLOWING, &DELIVERING, &GIVEN_UP]
    }

    fn write(&self, page: &mut Page) {
        let mut samples = page.family(&DELIVERIES);
        for (result, count) in self.deliveries.all() {
            samples.value(&[result], count);
        }
        let now = self.now.read();
        let mut samples = page.family(&FOLLOWING);
        now.iter().for_each(|now| samples.value(&[], now.following));
        let mut samples = page.family(&DELIVERING);
        now.iter().for_each(|now| samples.value(&[], now.delivering));
        let mut samples = page.family(&GIVEN_UP);
        now.iter().for_each(|now| samples.value(&[], now.given_up));
    }
}
