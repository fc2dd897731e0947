//! `cargo xtask litellm`: a conversation with an upstream that stores none.
//!
//! LiteLLM's proxy stands between talaria and a scripted model, as it does in front of real ones.
//! `tests/interop/litellm_memory.py` starts both and the binary, kills the binary half way, and fails if the model did not
//! receive the earlier messages. The proxy is installed on the first run, by its pins, into `target/litellm`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::bridge::Binary;
use crate::command::{run, target};
use crate::venv::Venv;

/// Installs what is missing and runs the conversation.
pub(crate) fn converse(root: &Path) -> Result<()> {
    let home = target(root)?.join("litellm");
    let scripts = root.join("tests/interop");
    let file = scripts.join("litellm_memory.txt");
    let pins = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let Some(proxy) = pins.lines().find(|line| line.starts_with("litellm==")) else {
        bail!("{} does not pin litellm", file.display())
    };
    let install = [OsStr::new("-r"), file.as_os_str()];
    let venv = Venv::find(&home, &proxy.replace("==", " "), &install, &pins)?;
    let binary = Binary::build(root, &home)?;
    let mut command = venv.python();
    command
        .arg(scripts.join("litellm_memory.py"))
        .arg(binary.program())
        .env("XDG_CACHE_HOME", binary.cache())
        .env("NO_PROXY", "127.0.0.1");
    run(&mut command).context("the agent did not remember the conversation")
}
