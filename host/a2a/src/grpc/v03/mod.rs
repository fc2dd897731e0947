//! 0.3: `a2a.v1`, the proto before 1.0.
//!
//! Requests go through the decoders of HTTP+JSON, which is the same proto as JSON; answers and updates are translated from those
//! of 1.0. What 0.3 cannot express is described in the crate's `v03`.

mod card;
mod decode;
mod encode;

#[allow(dead_code, unreachable_pub, clippy::all, reason = "generated from host/a2a/proto/a2a_v03.proto")]
pub(super) mod pb {
    include!("../generated/a2a.v1.rs");
}

pub(super) use decode::read;
pub(super) use encode::{answer, update};
