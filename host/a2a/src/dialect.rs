//! The JSON dialects of A2A: 1.0 has one for both bindings, 0.3 has one for each.
//!
//! The dialects differ in names and shapes; the parts of decoding a send that they share are here.

use serde::{Serialize, Serializer};
use talaria_turns::{Message, MessageId, Part, Role};

use crate::json_fields::Fields;
use crate::operation::{Addressed, Answer, Configuration, SendMessage};
use crate::rejection::Violation;
use crate::update_stream::StreamItem;
use crate::version::Version;
use crate::{v1, v03};

/// A JSON dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 1.0.
    V1,
    /// 0.3 over JSON-RPC.
    V03,
    /// 0.3 over HTTP+JSON.
    V03Rest,
}

/// A value to be encoded in a dialect.
pub(crate) struct InDialect<'a, T>(pub(crate) Dialect, pub(crate) &'a T);

// === impl Dialect ===

impl Dialect {
    pub(crate) fn version(self) -> Version {
        match self {
            Self::V1 => Version::V1,
            Self::V03 | Self::V03Rest => Version::V03,
        }
    }

    /// Decodes the parameters of a send, the only ones that differ by more than a name.
    pub(crate) fn send_message(self, params: Fields<'_>) -> Result<SendMessage, Violation> {
        match self {
            Self::V1 => v1::send_message(params),
            Self::V03 => v03::send_message(params),
            Self::V03Rest => v03::rest::send_message(params),
        }
    }
}

/// Decodes what surrounds the message of a send, which every dialect has in common.
pub(crate) fn finish_send(
    mut params: Fields<'_>,
    message: Option<Addressed>,
    configuration: fn(Fields<'_>) -> Result<Configuration, Violation>,
) -> Result<SendMessage, Violation> {
    Ok(SendMessage {
        addressed: message.ok_or_else(|| params.at("message").violation("is required"))?,
        configuration: params.object("configuration", configuration)?.unwrap_or_default(),
        metadata: params.metadata("metadata")?,
    })
}

/// Decodes the rest of a message whose id, role and parts have been decoded. `parts_name` is the field that the dialect keeps
/// parts in.
pub(crate) fn finish_message(
    fields: &mut Fields<'_>,
    id: MessageId,
    role: Role,
    parts_name: &'static str,
    parts: Vec<Part>,
) -> Result<Addressed, Violation> {
    if parts.is_empty() {
        return Err(fields.at(parts_name).violation("must hold at least one part"));
    }
    Ok(Addressed {
        task: fields.id("taskId")?,
        context: fields.id("contextId")?,
        message: Message {
            id,
            role,
            parts,
            metadata: fields.metadata("metadata")?,
            extensions: fields.strings("extensions")?,
            reference_task_ids: Vec::new(),
        },
    })
}

// === impl InDialect ===

impl Serialize for InDialect<'_, Answer> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Dialect::V1 => v1::AnswerOut(v1::Proto::V1, self.1).serialize(serializer),
            Dialect::V03 => v03::AnswerOut(self.1).serialize(serializer),
            Dialect::V03Rest => v1::AnswerOut(v1::Proto::V03, self.1).serialize(serializer),
        }
    }
}

impl Serialize for InDialect<'_, StreamItem> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Dialect::V1 => v1::StreamItemOut(v1::Proto::V1, self.1).serialize(serializer),
            Dialect::V03 => v03::StreamItemOut(self.1).serialize(serializer),
            Dialect::V03Rest => v1::StreamItemOut(v1::Proto::V03, self.1).serialize(serializer),
        }
    }
}
