//! Version 1.0: ProtoJSON of `lf.a2a.v1`.
//!
//! Both bindings use it. The decoder accepts what `json_fields` describes, and enums by name or by number. The encoder writes
//! camelCase, enums by name, fields in the order of the proto, no defaults, and the same bytes for the same value. It takes a
//! [`Proto`], since 0.3 over HTTP+JSON is an earlier version of the same proto.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::{configuration, role, send_message};
pub(crate) use encode::{AnswerOut, Proto, StreamItemOut};
#[cfg(test)]
pub(crate) use encode::{MessageOut, PartOut};
