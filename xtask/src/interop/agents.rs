//! Agents of the SDKs and of google-adk behind the executor `a2a`.
//!
//! Each agent is a script in `tests/interop/agents` that prints its address. A server with the executor in front of it is
//! called by `agents.py`, which prints a line for every operation like the clients do.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

use super::{Line, listen};
use crate::bridge::Binary;
use crate::gate::Tally;
use crate::venv::Venv;

/// An agent, and how it is to be spoken to.
struct Agent {
    name: &'static str,
    binding: &'static str,
    /// Whether its card says that it streams.
    streams: bool,
    script: &'static str,
    args: &'static [&'static str],
    /// The file with its packages, and the package that it is named after.
    pins: (&'static str, &'static str),
}

const SDK_1: (&str, &str) = ("agents/sdk_1.txt", "a2a-sdk");
const SDK_03: (&str, &str) = ("agents/sdk_03.txt", "a2a-sdk");

const AGENTS: [Agent; 6] = [
    Agent {
        name: "a2a-sdk 1.3 agent",
        binding: "JSONRPC",
        streams: true,
        script: "sdk_1",
        args: &[],
        pins: SDK_1,
    },
    Agent {
        name: "a2a-sdk 1.3 agent",
        binding: "HTTP+JSON",
        streams: true,
        script: "sdk_1",
        args: &["--binding", "HTTP+JSON"],
        pins: SDK_1,
    },
    Agent {
        name: "a2a-sdk 1.3 agent",
        binding: "polled",
        streams: false,
        script: "sdk_1",
        args: &["--no-streams"],
        pins: SDK_1,
    },
    Agent {
        name: "a2a-sdk 0.3 agent",
        binding: "JSONRPC",
        streams: true,
        script: "sdk_03",
        args: &[],
        pins: SDK_03,
    },
    Agent {
        name: "a2a-sdk 0.3 agent",
        binding: "polled",
        streams: false,
        script: "sdk_03",
        args: &["--no-streams"],
        pins: SDK_03,
    },
    Agent {
        name: "google-adk agent",
        binding: "JSONRPC",
        streams: true,
        script: "adk",
        args: &[],
        pins: ("frameworks/adk.txt", "google-adk"),
    },
];

/// A running agent, which is stopped when it is dropped.
struct Running {
    child: Child,
    url: String,
    /// What it writes beside its address, which is of use only if something failed.
    said: NamedTempFile,
}

/// Installs what the agents need.
pub(super) fn prepare(home: &Path, scripts: &Path) -> Result<()> {
    AGENTS.iter().try_for_each(|agent| agent.venv(home, scripts).map(drop))
}

/// Runs every agent and counts the lines. `driver` runs `agents.py`.
pub(super) fn run(
    home: &Path,
    scripts: &Path,
    binary: &Binary,
    driver: impl Fn() -> Result<Command>,
) -> Result<(Tally, Vec<String>)> {
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    for agent in &AGENTS {
        let running = agent.start(home, scripts)?;
        let bridge = binary.serve(&format!(
            "[executors]\ndefault = \"agent\"\n[store]\nurl = \"memory:\"\n[a2a]\nreply = \"task\"\n\
             [executor.agent]\ncomponent = \"builtin:a2a\"\nsettings = {{ url = {:?}, poll_seconds = 1 }}\n",
            running.url
        ))?;
        let mut command = driver()?;
        let kind = if agent.streams { "streamed" } else { "polled" };
        command.args([agent.name, agent.binding, kind, bridge.url()]);
        let mut lines: Vec<Line> = Vec::new();
        let ended = listen(&mut command, agent.name, |line| {
            line.print()?;
            lines.push(line);
            Ok(())
        })?;
        let failed: Vec<_> = lines.iter().filter_map(Line::failure).collect();
        tally += Tally { passed: lines.len().saturating_sub(failed.len()), failed: failed.len() };
        if !failed.is_empty() || ended.is_err() {
            failures.push(format!("The agent:\n{}The bridge:\n{}", running.said()?, bridge.log()));
        }
        failures.extend(failed);
        if let Err(ended) = ended {
            tally += Tally { passed: 0, failed: 1 };
            failures.push(ended);
        }
    }
    Ok((tally, failures))
}

// === impl Agent ===

impl Agent {
    fn venv(&self, home: &Path, scripts: &Path) -> Result<Venv> {
        let (pins, package) = self.pins;
        Venv::pinned(home, &scripts.join(pins), package)
    }

    fn start(&self, home: &Path, scripts: &Path) -> Result<Running> {
        let script = scripts.join("agents").join(self.script).with_extension("py");
        let said = NamedTempFile::new()?;
        let mut child = self
            .venv(home, scripts)?
            .python()
            .arg(&script)
            .args(self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said.reopen()?)
            .spawn()
            .with_context(|| format!("cannot start {}", script.display()))?;
        let out = child.stdout.take();
        let mut running = Running { child, url: String::new(), said };
        let out = out.context("the agent has no piped output")?;
        BufReader::new(out).read_line(&mut running.url)?;
        running.url.truncate(running.url.trim_end().len());
        if !running.url.starts_with("http://") {
            bail!("{} did not print its address:\n{}", script.display(), running.said()?);
        }
        Ok(running)
    }
}

// === impl Running ===

impl Running {
    fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.said.path())?).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
