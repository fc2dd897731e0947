//! What makes a host a workspace of the platform.
//!
//! | module | promises |
//! |---|---|
//! | `manifest` | reads `config.yaml` leniently |
//! | `prompt`, `skills`, `plugins`, `platform_context` | assemble the prompt and the tools of the next turn, from files and the platform |
//! | `platform_session`, `heartbeat`, `platform`, `keys`, `activity` | keep the platform informed, whatever else is busy |
//! | `self_prompt` | sends the prompts that the workspace gives itself |
//! | `tools`, `delegations`, `tickets` | give the agent tools for its team, for people and for memory |
//! | `tool_activity` | tells the platform's watchers that tools are used |
//! | `transcript`, `snapshot` | keep recent messages, for readers and for the next start |
//!
//! Nothing here runs a turn or serves a request; the binary does that with what this crate makes. Nothing here ends the
//! process either: a mistake of the platform or in a file is a warning, and the rest works.
#![forbid(unsafe_code)]

mod activity;
mod delegations;
mod folder;
mod heartbeat;
mod keys;
mod manifest;
mod platform;
mod platform_context;
mod platform_session;
mod plugins;
mod prompt;
mod self_prompt;
mod skills;
mod snapshot;
mod tickets;
mod tool_activity;
mod tools;
mod transcript;

pub use activity::{Activity, Reading};
pub use delegations::IdleTimeout;
pub use heartbeat::{Host, Status, Timing};
pub use manifest::{FILE as MANIFEST, Manifest};
pub use platform_session::{Keys, PlatformSession};
pub use prompt::{Assembled, Assembly, Piece, Places};
pub use self_prompt::SelfPrompts;
pub use skills::Skill;
pub use snapshot::Snapshot;
pub use talaria_config::files::Trouble;
pub use tool_activity::ToolActivity;
pub use tools::{CallObserver, OfferedTools, SERVER as TOOLS_SERVER, TeamTools, ToolsConfig};
pub use transcript::{Page, Transcript};

/// Whether a text can be a workspace's id: it stands in paths and headers.
pub fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.')
}
