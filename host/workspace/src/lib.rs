//! The workspace bridge: what makes a host a workspace of the platform.
//!
//! | module | promises |
//! |---|---|
//! | `manifest` | `config.yaml`, read leniently |
//! | `prompt`, `skills`, `plugins`, `surroundings` | the prompt and the tools of the next turn, from files and the platform |
//! | `heart`, `platform`, `keys`, `pulse` | the platform hears of this process, whatever else is busy |
//! | `initiative` | what the workspace says by itself |
//! | `transcript`, `snapshot` | what was said lately, for those who look and for the next start |
//!
//! Nothing here runs a turn or serves a request; the binary hands what is made here to those who do. Nothing here ends
//! the process either: what the platform, a file or a gateway does wrong is a warning, and the rest works.
#![forbid(unsafe_code)]

mod contact;
mod folder;
mod heart;
mod initiative;
mod keys;
mod manifest;
mod platform;
mod plugins;
mod prompt;
mod pulse;
mod skills;
mod snapshot;
mod surroundings;
mod transcript;

pub use contact::{Contact, Keys};
pub use heart::{Host, Status, Timing};
pub use initiative::Initiative;
pub use manifest::{FILE as MANIFEST, Manifest};
pub use prompt::{Assembled, Assembly, Piece, Places};
pub use pulse::{Pulse, Reading};
pub use skills::Skill;
pub use snapshot::Snapshot;
pub use talaria_config::files::Trouble;
pub use transcript::{Page, Transcript};

/// Whether a text can be a workspace's id: it stands in paths and headers.
pub fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.')
}
