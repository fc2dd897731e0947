//! 1.0: `lf.a2a.v1`.

pub(super) mod card;
mod decode;
mod encode;

#[allow(dead_code, unreachable_pub, clippy::all, reason = "generated from host/a2a/proto/a2a_v1.proto")]
pub(super) mod pb {
    include!("../generated/lf.a2a.v1.rs");
}

pub(super) use decode::{addressed, read, with_members};
pub(super) use encode::{answer, push_config, sent, task, update};
