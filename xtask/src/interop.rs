//! `cargo xtask interop`: the clients of the SDKs against the real binary, and the binary in front of agents.
//!
//! Each client is a script in `tests/interop` that does everything that its SDK offers and prints a line of JSON for every
//! binding and operation; `harness.py` there documents the lines. Every client runs, even if another failed before. The
//! command fails if a line reports an error, or if a script did not finish. `agents` has the agents.

mod agents;
mod frameworks;
mod results;

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::bridge::{Binary, Bridge};
use crate::command::target;
use crate::gate::Tally;
use crate::node::Node;
use crate::venv::Venv;

pub(crate) use frameworks::run as frameworks;

/// The configuration of the server. The conformance executor does what the id of a message says.
const CONFIG: &str = r#"
[a2a]
url = "http://{listen}"
reply = "task"
[a2a.card]
extended_card = true
push_notifications = true
[push]
allow_private = true
[executors]
default = "conformance"
[store]
url = "memory:"
"#;

const CLIENTS: [Client; 3] = [
    Client { name: "python_1", runtime: Runtime::Python },
    Client { name: "python_03", runtime: Runtime::Python },
    Client { name: "js", runtime: Runtime::Node },
];

/// The name by which only the agents are run.
const AGENTS: &str = "agents";

/// A client; its files in `tests/interop` have its name.
struct Client {
    name: &'static str,
    runtime: Runtime,
}

enum Runtime {
    /// `NAME.py`, with the packages of `NAME.txt`.
    Python,
    /// `NAME/client.mjs`, with the packages of `NAME/package-lock.json`.
    Node,
}

/// A line that a script prints.
#[derive(Deserialize)]
struct Line {
    client: String,
    binding: String,
    operation: String,
    seconds: f64,
    error: Option<String>,
}

/// Installs what the clients need.
pub(crate) fn prepare(root: &Path) -> Result<()> {
    let (home, scripts) = (target(root)?.join("interop"), root.join("tests/interop"));
    CLIENTS.iter().try_for_each(|client| client.prepare(&home, &scripts).map(drop))?;
    agents::prepare(&home, &scripts)
}

/// Runs every client, or the named one, and counts the lines that they print.
pub(crate) fn run(name: Option<&str>, root: &Path) -> Result<Tally> {
    let clients: Vec<_> =
        CLIENTS.iter().filter(|client| name.is_none_or(|name| name == client.name)).collect();
    let with_agents = name.is_none_or(|name| name == AGENTS);
    ensure!(
        !clients.is_empty() || with_agents,
        "there is no such client; the clients are {}, and there is {AGENTS}",
        CLIENTS.map(|client| client.name).join(", ")
    );
    let home = target(root)?.join("interop");
    let scripts = root.join("tests/interop");
    // The public example key of RFC 8410.
    let key = scripts.join("card-key.pem");
    let config = format!("{CONFIG}[a2a.card.signing]\nkey = {{ file = {key:?} }}\nkid = \"interop\"\n");
    let commands =
        clients.iter().map(|client| client.prepare(&home, &scripts)).collect::<Result<Vec<_>>>()?;
    let binary = Binary::build(root, &home)?;
    let mut failures = Vec::new();
    let mut tally = Tally::default();
    let bridge = binary.serve(&config)?;
    for (client, command) in clients.iter().zip(commands) {
        let (lines, failed) = client.talk(command, &bridge)?;
        tally += Tally { passed: lines.saturating_sub(failed.len()), failed: failed.len() };
        failures.extend(failed);
    }
    drop(bridge);
    if with_agents {
        let driver = || {
            let pins = scripts.join("python_1.txt");
            let mut command = Venv::pinned(&home, &pins, "a2a-sdk")?.python();
            command.arg(scripts.join("agents.py"));
            Ok(command)
        };
        let (counted, failed) = agents::run(&home, &scripts, &binary, driver)?;
        tally += counted;
        failures.extend(failed);
    }
    for failure in &failures {
        eprintln!("\n{failure}");
    }
    Ok(tally)
}

// === impl Client ===

impl Client {
    /// Installs what it needs, and returns the command that runs it.
    fn prepare(&self, home: &Path, scripts: &Path) -> Result<Command> {
        match self.runtime {
            Runtime::Python => {
                let pins = scripts.join(self.name).with_extension("txt");
                let mut command = Venv::pinned(home, &pins, "a2a-sdk")?.python();
                command.arg(scripts.join(self.name).with_extension("py"));
                Ok(command)
            }
            Runtime::Node => {
                let project = scripts.join(self.name);
                let node = Node::find(home)?;
                // Packages are looked up beside the script.
                let copy = node.install(home, &project)?.join("client.mjs");
                fs::copy(project.join("client.mjs"), &copy)
                    .with_context(|| format!("cannot copy the client to {}", copy.display()))?;
                let mut command = node.command("node");
                command.arg(copy);
                Ok(command)
            }
        }
    }

    /// Runs it to its end, shows its lines, and returns their number and the failures.
    fn talk(&self, mut command: Command, bridge: &Bridge) -> Result<(usize, Vec<String>)> {
        command.arg(bridge.url()).arg("--config").arg(bridge.config());
        let mut lines = Vec::new();
        let ended = listen(&mut command, self.name, |line| {
            lines.push(line);
            Ok(())
        })?;
        // The bindings run concurrently.
        lines.sort_by(|one, other| (&one.client, &one.binding).cmp(&(&other.client, &other.binding)));
        for line in &lines {
            line.print()?;
        }
        let count = lines.len();
        let mut failures: Vec<_> = lines.iter().filter_map(Line::failure).collect();
        if let Err(ended) = ended {
            failures.push(format!("{ended}\nThe bridge:\n{}", bridge.log()));
        }
        Ok((count, failures))
    }
}

/// Runs a script and passes its lines on as they appear. The inner error is for a script that did not finish, with its output.
fn listen(
    command: &mut Command,
    name: &str,
    mut hear: impl FnMut(Line) -> Result<()>,
) -> Result<Result<(), String>> {
    let said = tempfile::NamedTempFile::new()?;
    let mut child = command
        .env("NO_PROXY", "127.0.0.1,localhost")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(said.reopen()?)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let out = BufReader::new(child.stdout.take().context("the client has no piped output")?);
    let heard = out.lines().try_for_each(|line| {
        let line = line?;
        hear(
            serde_json::from_str(&line)
                .with_context(|| format!("{name} printed a line that is not a result: {line}"))?,
        )
    });
    if heard.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    heard?;
    if status.success() {
        return Ok(Ok(()));
    }
    let said = fs::read(said.path())?;
    Ok(Err(format!("{name} ended with {status}:\n{}", String::from_utf8_lossy(&said))))
}

// === impl Line ===

impl Line {
    fn print(&self) -> Result<()> {
        let Self { client, binding, operation, seconds, error } = self;
        let result = if error.is_some() { "FAILED" } else { "ok" };
        writeln!(io::stdout(), "{result:<6}  {client:<23}  {binding:<9}  {operation:<13}  {seconds:>5.1} s")?;
        Ok(())
    }

    /// The client, and the way in which a framework is used.
    fn label(&self) -> String {
        let Self { client, binding, .. } = self;
        if binding.is_empty() { client.clone() } else { format!("{client}, {binding}") }
    }

    fn failure(&self) -> Option<String> {
        let Self { client, binding, operation, error, .. } = self;
        error.as_ref().map(|error| format!("{client}, {binding}, {operation}:\n{error}"))
    }
}
