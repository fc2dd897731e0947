//! Version 1.0: ProtoJSON of `lf.a2a.v1`.
//!
//! In: as `read` describes, with enums by name or by number. Out: camelCase, enums by name, fields in the order of
//! the proto, defaults left out, the same bytes for the same thing. The HTTP+JSON binding will use the same two halves.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::{get_task, send_message};
pub(crate) use encode::AnswerOut;
