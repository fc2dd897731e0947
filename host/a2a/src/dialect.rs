//! The ways to write one thing: 1.0 has one JSON for both bindings, 0.3 has one for each.

use serde::{Serialize, Serializer};

use crate::operation::{Answer, SendMessage};
use crate::read::Fields;
use crate::refusal::Violation;
use crate::updates::Item;
use crate::version::Version;
use crate::{v1, v03, v03_rest};

/// A JSON of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    V1,
    /// As JSON-RPC has it.
    V03,
    /// As HTTP+JSON has it.
    V03Rest,
}

/// Something in a dialect.
pub(crate) struct Written<'a, T>(pub(crate) Dialect, pub(crate) &'a T);

// === impl Dialect ===

impl Dialect {
    pub(crate) fn version(self) -> Version {
        match self {
            Self::V1 => Version::V1,
            Self::V03 | Self::V03Rest => Version::V03,
        }
    }

    /// Reads the parameters of a send; the only ones that differ by more than a name.
    pub(crate) fn send_message(self, params: Fields<'_>) -> Result<SendMessage, Violation> {
        match self {
            Self::V1 => v1::send_message(params),
            Self::V03 => v03::send_message(params),
            Self::V03Rest => v03_rest::send_message(params),
        }
    }
}

// === impl Written ===

impl Serialize for Written<'_, Answer> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Dialect::V1 => v1::AnswerOut(v1::Form::One, self.1).serialize(serializer),
            Dialect::V03 => v03::AnswerOut(self.1).serialize(serializer),
            Dialect::V03Rest => v1::AnswerOut(v1::Form::Old, self.1).serialize(serializer),
        }
    }
}

impl Serialize for Written<'_, Item> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Dialect::V1 => v1::ItemOut(v1::Form::One, self.1).serialize(serializer),
            Dialect::V03 => v03::ItemOut(self.1).serialize(serializer),
            Dialect::V03Rest => v1::ItemOut(v1::Form::Old, self.1).serialize(serializer),
        }
    }
}
