//! Version 0.3 over JSON-RPC: `kind` discriminators, lower-case states, `file` parts. HTTP+JSON of 0.3 is another dialect:
//! `rest` decodes it, `v1` encodes it.
//!
//! The decoder accepts what existing peers send: `kind` may be missing or called `type`, and a part may be wrapped in `root`.
//! The encoder always writes `kind`, because the platform finds its text by it.
//!
//! 0.3 cannot express everything: data that is not an object travels as `{"value": …}` with a mark that the SDKs share, and
//! the media type and file name of a part that is not a file are dropped.

mod decode;
mod encode;
pub(crate) mod rest;
#[cfg(test)]
mod tests;

pub(crate) use decode::{send_message, unwrap_data};
pub(crate) use encode::{AnswerOut, DataOut, StreamItemOut};

/// In the metadata of a data part: the data is its `value`. The Python, Go and JavaScript SDKs all use this mark.
pub(crate) const WRAPPED: &str = "data_part_compat";
