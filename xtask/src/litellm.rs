//! `cargo xtask litellm`: a conversation with an upstream that stores none.
//!
//! LiteLLM's proxy stands between talaria and a scripted model, as it does in front of real ones.
//! `tests/interop/litellm_memory.py` starts both and the binary, kills the binary half way, and fails if the model did not
//! receive the earlier messages. The proxy is installed on the first run, by its pins, into `target/litellm`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::bridge::Binary;
use crate::command::{run, target};
use crate::venv::Venv;

/// The proxy's environment.
pub(crate) fn install(root: &Path) -> Result<Venv> {
    let pins = root.join("tests/interop/litellm_memory.txt");
    Venv::pinned(&target(root)?.join("litellm"), &pins, "litellm")
}

/// Installs what is missing and runs the conversation.
pub(crate) fn converse(root: &Path) -> Result<()> {
    let home = target(root)?.join("litellm");
    let scripts = root.join("tests/interop");
    let venv = install(root)?;
    let binary = Binary::build(root, &home)?;
    let mut command = venv.python();
    command
        .arg(scripts.join("litellm_memory.py"))
        .arg(binary.program())
        .env("XDG_CACHE_HOME", binary.cache())
        .env("NO_PROXY", "127.0.0.1");
    run(&mut command).context("the agent did not remember the conversation")
}
