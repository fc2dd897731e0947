//! Redaction: the one place that decides which parts of a text are secret.
//!
//! There are two rules, for two kinds of readers.
//!
//! - **Callers** read what the agent wrote, unchanged but for the *values* of secrets that this process holds
//!   ([`Redactor::values`], and [`ReplyRedactor`] with the operator's choice). A value is found in every form in which
//!   programs usually write it (`forms`), and also if it is split over the pieces of a stream ([`TextStream`]).
//! - **Operators, and disks that leave the machine**, read logs, spans, heartbeats, snapshots and transcripts. There, a
//!   secret of somebody else is as bad as one of ours, and a word too many does no harm: values, and everything that has
//!   the [`shapes`](shapes()) of a secret ([`Redactor::all`]).
//!
//! The third reader is a guest, which must not learn a secret that its upstream repeats: [`MaskedBody`] masks the values
//! that belong to the destination and keeps the lengths true.
//!
//! **Nothing that is held back depends on a secret.** A stream holds back the current word, or a constant number of
//! bytes, so the places where pieces end say nothing about the values that are searched for.
//!
//! **Limits of the promise.** Values of less than 8 bytes are not searched for, because replacing them would destroy
//! ordinary text. A secret in a form that `forms` does not know (compressed, encrypted, reversed, in another case) is not
//! found. Whether a whole value was replaced can be seen, so a secret that can be guessed can be confirmed: secrets must
//! be random.

#![forbid(unsafe_code)]

mod forms;
mod redactor;
mod reply;
mod shapes;
mod stream;
mod values;

pub use redactor::Redactor;
pub use reply::{Replies, ReplyRedactor};
pub use shapes::shapes;
pub use stream::TextStream;
pub use values::{MaskedBody, TooLarge, Values};
