//! `cargo xtask interop --frameworks`: agent frameworks against the real binary.
//!
//! Each framework reads an answer in its own way, and many show nothing, half of it, or all of it twice although the SDK below
//! them passes. So a script in `tests/interop/frameworks` drives each one and compares the text that the framework gives to a
//! program, to the letter; `tests/interop/framework.py` documents the scripts. They call three servers in front of one
//! scripted agent: one that streams, one that asks questions and reports progress, one that requires a token.
//!
//! Every framework has its own packages below `target/interop`, all of them pinned, because no two agree on an SDK. One that
//! cannot be installed, or does not finish, fails; the others run nevertheless. Failures that are the framework's fault are in
//! [`KNOWN`]. Any other failure fails the command, and so does a known one that passes: then the list must be corrected.
//!
//! They are not part of `cargo xtask test`: the packages have 3 GB and take minutes to install.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::listen;
use super::results::{Outcome, Results};
use crate::bridge::{Binary, Bridge};
use crate::command::target;
use crate::gate::Tally;
use crate::node::Node;
use crate::venv::{self, Venv};

/// The token of the server that requires one; `tests/interop/harness.py` has it too.
const CREDENTIALS: &str = "interop-credentials";
/// The scripted agent accepts any key.
const GATEWAY_KEY: &str = "interop-gateway-key";

const FRAMEWORKS: [Framework; 12] = [
    Framework::python("adk"),
    Framework::node("adk_js"),
    Framework::python("strands"),
    Framework::node("strands_js"),
    Framework::python("crewai"),
    Framework::python("agent_framework"),
    Framework::python("beeai"),
    Framework::python("ag2"),
    Framework { runtime: Runtime::Python((3, 12)), ..Framework::python("fast_agent") },
    Framework::node("vercel"),
    Framework::node("ag_ui"),
    Framework::python("litellm"),
];

/// Failures that are the framework's fault: its name, with the way in which it is used if there are several; the operation;
/// the reason.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "crewai polling",
        "approval",
        "CrewAI puts the last message of the agent's in the history, its question, before the answer.",
    ),
    (
        "ag_ui",
        "file",
        "@ag-ui/a2a does not know the images of @ag-ui/client 1.0, and sends a description of the image as data.",
    ),
];

/// A framework; its files in `tests/interop/frameworks` have its name.
struct Framework {
    name: &'static str,
    runtime: Runtime,
}

enum Runtime {
    /// `NAME.py` on that Python or a newer one, with the packages of `NAME.txt`.
    Python((u32, u32)),
    /// `NAME/driver.mjs`, with the packages of `NAME/package-lock.json`.
    Node,
}

/// The arguments of the command.
#[derive(Default)]
struct Request<'a> {
    name: Option<&'a str>,
    stream: Option<&'a str>,
    json: bool,
}

/// The scripted agent, which ends with its standard input.
struct Upstream {
    child: Child,
    port: u16,
}

/// The servers that a driver calls.
struct Bridges {
    chat: Bridge,
    runs: Bridge,
    auth: Bridge,
    /// Stopped after the servers.
    _upstream: Upstream,
}

/// Runs every framework, or the one that is named, prints a table, and counts. `TALARIA_BLESS=1` writes the table into
/// `docs/interop.md` too.
pub(crate) fn run(args: &[&str], root: &Path) -> Result<Tally> {
    let request = Request::parse(args)?;
    let chosen: Vec<_> = FRAMEWORKS
        .iter()
        .filter(|framework| request.name.is_none_or(|name| name == framework.name))
        .collect();
    ensure!(
        !chosen.is_empty(),
        "there is no such framework; the frameworks are {}",
        FRAMEWORKS.map(|framework| framework.name).join(", ")
    );
    let home = target(root)?.join("interop");
    let scripts = root.join("tests/interop");
    let binary = Binary::build(root, &home)?;
    let bridges = Bridges::start(&binary, &scripts, request.stream)?;
    let mut results = Results::default();
    for framework in chosen {
        framework.drive(&home, &scripts, &bridges, &mut results)?;
    }
    if request.json {
        serde_json::to_writer_pretty(io::stdout(), &results.outcomes)?;
        writeln!(io::stdout())?;
    } else {
        write!(io::stdout(), "{}", results.table())?;
    }
    if request.name.is_none() && request.stream.is_none() && env::var_os("TALARIA_BLESS").is_some() {
        results.write(&root.join("docs/interop.md"))?;
    }
    Ok(results.judge())
}

// === impl Request ===

impl<'a> Request<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let mut request = Self::default();
        let mut args = args.iter().copied();
        while let Some(arg) = args.next() {
            match arg {
                "--output" => {
                    ensure!(args.next() == Some("json"), "--output takes json");
                    request.json = true;
                }
                "--stream" => request.stream = Some(args.next().context("--stream needs a value")?),
                name if !name.starts_with('-') && request.name.is_none() => request.name = Some(name),
                other => bail!("unknown argument {other}"),
            }
        }
        Ok(request)
    }
}

// === impl Framework ===

impl Framework {
    const fn python(name: &'static str) -> Self {
        Self { name, runtime: Runtime::Python(venv::OLDEST) }
    }

    const fn node(name: &'static str) -> Self {
        Self { name, runtime: Runtime::Node }
    }

    /// Runs its driver and adds the outcomes to the results.
    fn drive(&self, home: &Path, scripts: &Path, bridges: &Bridges, results: &mut Results) -> Result<()> {
        let mut command = match self.command(home, scripts) {
            Ok(command) => command,
            Err(error) => {
                results.outcomes.push(Outcome::broken(self.name, format!("{error:#}")));
                return Ok(());
            }
        };
        // Frameworks leave files behind.
        let folder = tempfile::tempdir_in(home)?;
        command
            .arg(bridges.chat.url())
            .args(["--runs", bridges.runs.url(), "--auth", bridges.auth.url()])
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .env("HOME", folder.path());
        let ended = listen(&mut command, self.name, |line| {
            let way = if line.binding.is_empty() { "" } else { " " };
            let name = format!("{}{way}{}", self.name, line.binding);
            let is_known =
                |(of, operation, _): &&(&str, &str, &str)| *of == name && *operation == line.operation;
            let known = KNOWN.iter().find(is_known);
            let outcome = Outcome::new(self.name, line, known.map(|(_, _, reason)| *reason));
            eprintln!("{outcome}");
            results.outcomes.push(outcome);
            Ok(())
        })?;
        if let Err(ended) = ended {
            results.outcomes.push(Outcome::broken(self.name, ended));
        }
        Ok(())
    }

    /// Installs what it needs, and returns the command that runs its driver.
    fn command(&self, home: &Path, scripts: &Path) -> Result<Command> {
        let folder = scripts.join("frameworks");
        match self.runtime {
            Runtime::Python(oldest) => {
                let file = folder.join(self.name).with_extension("txt");
                let pins =
                    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                // The list of pins is complete.
                let install = [OsStr::new("--no-deps"), OsStr::new("-r"), file.as_os_str()];
                let mut command = Venv::since(oldest, home, self.name, &install, &pins)?.python();
                // A driver has the name of its package, so Python must not look into the driver's folder.
                command.arg("-P").arg(folder.join(self.name).with_extension("py"));
                command.env("PYTHONPATH", scripts).env("PYTHONDONTWRITEBYTECODE", "1");
                Ok(command)
            }
            Runtime::Node => {
                let project = folder.join(self.name);
                let node = Node::find(home)?;
                let installed = node.install(home, &project)?;
                // Packages are looked up beside the script.
                let copies =
                    [(folder.join("kit.mjs"), "kit.mjs"), (project.join("driver.mjs"), "driver.mjs")];
                for (from, name) in copies {
                    fs::copy(&from, installed.join(name))
                        .with_context(|| format!("cannot copy {}", from.display()))?;
                }
                let mut command = node.command("node");
                command.arg(installed.join("driver.mjs"));
                Ok(command)
            }
        }
    }
}

// === impl Bridges ===

impl Bridges {
    fn start(binary: &Binary, scripts: &Path, stream: Option<&str>) -> Result<Self> {
        let upstream = Upstream::start(&scripts.join("frameworks/upstream.py"))?;
        let base = format!("settings = {{ base_url = \"http://127.0.0.1:{}/v1\" }}\n", upstream.port);
        let stream = stream.map(|form| format!("stream = {form:?}\n")).unwrap_or_default();
        let common = format!(
            "[a2a]\n{stream}[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"memory:\"\n\
             [executor.chat-completions]\n{base}"
        );
        let runs = format!("{common}[executors]\ndefault = \"hermes-runs\"\n[executor.hermes-runs]\n{base}");
        let auth = format!(
            "{common}[a2a.auth]\ntokens = [{{ name = \"framework\", token = {{ env = \"CALLER\" }} }}]\n"
        );
        let secrets = [("API_SERVER_KEY", GATEWAY_KEY), ("CALLER", CREDENTIALS)];
        Ok(Self {
            chat: binary.serve_with(&common, &secrets)?,
            runs: binary.serve_with(&runs, &secrets)?,
            auth: binary.serve_with(&auth, &secrets)?,
            _upstream: upstream,
        })
    }
}

// === impl Upstream ===

impl Upstream {
    fn start(script: &PathBuf) -> Result<Self> {
        let python = venv::python(venv::OLDEST)?;
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the scripted agent")?;
        let mut line = String::new();
        let out = child.stdout.take().context("the scripted agent has no piped output")?;
        BufReader::new(out).read_line(&mut line)?;
        let port = line
            .trim()
            .parse()
            .with_context(|| format!("the scripted agent printed {line:?} instead of its port"))?;
        Ok(Self { child, port })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
