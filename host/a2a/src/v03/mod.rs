//! Version 0.3 as JSON-RPC speaks it: `kind` discriminators, lower-case states, `file` parts.
//!
//! In: what the peers of the seeds really send. `kind` may be missing or be called `type`, a part may be wrapped in
//! `root`. Out: `kind` always, since the platform finds its text by it. (HTTP+JSON of 0.3 is another dialect.)
//!
//! What 0.3 has no word for: data that is no object travels as `{"value": …}` with the mark that the SDKs share, and
//! the media type and file name of a part that is no file are left out.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decode::{send_message, unwrap_data};
pub(crate) use encode::{AnswerOut, DataOut, ItemOut};

/// In the metadata of a data part: its `value` is the data. The Python, Go and JavaScript SDKs all use it.
const WRAPPED: &str = "data_part_compat";
