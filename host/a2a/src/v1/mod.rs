//! Version 1.0: ProtoJSON of `lf.a2a.v1`.
//!
//! In: as `read` describes, with enums by name or by number. Out: camelCase, enums by name, fields in the order of
//! the proto, defaults left out, the same bytes for the same thing. Both bindings use it. What is written has a [`Form`],
//! since 0.3 over HTTP+JSON is the same proto before a few things were renamed.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::{configuration, role, send_message};
pub(crate) use encode::{AnswerOut, Form, ItemOut};
#[cfg(test)]
pub(crate) use encode::{MessageOut, PartOut};
