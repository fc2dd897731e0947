//! `cargo xtask tck DIR`: a conformance kit against the real binary.
//!
//! DIR is a checkout of a2aproject/a2a-tck, of 1.0 or of 0.3; its tree says which. The kit gets an environment of its own
//! and is run by its own runner, once for every card or category that it needs, each time with a new server. A plugin
//! (`outcomes.py`) reports the outcome of every test, in the same form for both kits.
//!
//! A test that fails because of the kit is in [`KNOWN`], with the reason.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::bridge::Binary;
use crate::command::target;
use crate::kit::{Known, Outcomes, Report, Results};
use crate::venv::Venv;

/// The configuration, without the card and the executor's settings.
const CONFIG: &str = r#"
[a2a]
reply = "task"
[push]
allow_private = true
[executors]
default = "conformance"
[store]
url = "memory:"
"#;

const EVERYTHING: &str = "[a2a.card]\nstreaming = true\npush_notifications = true\nextended_card = true\n";
const NOTHING: &str = "[a2a.card]\nstreaming = false\npush_notifications = false\nextended_card = false\n";
/// The kit of 0.3 has no credentials, and fails an extended card that is served without any.
const NO_EXTENDED_CARD: &str =
    "[a2a.card]\nstreaming = true\npush_notifications = true\nextended_card = false\n";
const EXTENSION: &str =
    "[a2a.card]\nextensions = [{ uri = \"urn:a2a:tck:required-extension\", required = true }]\n";
/// The kit of 0.3 expects a question if a message says nothing else.
const ASKS_BACK: &str = "[executor.conformance]\nsettings = { otherwise = \"input-required\" }\n";

/// Seconds that the kit of 0.3 waits for an event. The executor's longest turn must take twice that.
const STREAMING_TIMEOUT: &str = "2";

const V1: &[Run] = &[
    Run { name: "1.0, everything on", card: EVERYTHING, args: Args::Pytest(&["--webhook-host=127.0.0.1"]) },
    Run { name: "1.0, everything off", card: NOTHING, args: Args::Pytest(&[]) },
    Run { name: "1.0, a required extension", card: EXTENSION, args: Args::Pytest(&["-k", "Extension"]) },
];
const V03: &[Run] = &[
    Run::v03("0.3, JSON-RPC, mandatory", "mandatory", "jsonrpc"),
    Run::v03("0.3, JSON-RPC, capabilities", "capabilities", "jsonrpc"),
    Run::v03("0.3, JSON-RPC, quality", "quality", "jsonrpc"),
    Run::v03("0.3, JSON-RPC, features", "features", "jsonrpc"),
    Run::v03("0.3, HTTP+JSON, mandatory", "mandatory", "rest"),
    Run::v03("0.3, HTTP+JSON, capabilities", "capabilities", "rest"),
    Run::v03("0.3, HTTP+JSON, quality", "quality", "rest"),
    Run::v03("0.3, HTTP+JSON, features", "features", "rest"),
    Run::v03("0.3, equivalence of both", "transport-equivalence", "jsonrpc,rest"),
];

/// Why codes of gRPC differ.
const PINNED_CODES: &str =
    "The kit has the codes of 1.0.0. Since 1.0.1 what is not supported is FAILED_PRECONDITION.";

/// Failures that are the kit's fault.
const KNOWN: &[Known] = &[
    (
        "1.0",
        "::test_agent_card_validates_against_schema",
        "The kit asks for the card without a version, and gets the one that serves both. Who says `A2A-Version: 1.0` gets \
         no field of 0.3.",
    ),
    ("1.0, everything", "::test_must_requirement[CORE-SEND-003-jsonrpc]", NO_ERROR),
    ("1.0, everything", "::test_must_requirement[CORE-SEND-003-http_json]", NO_ERROR),
    ("1.0, everything", "::test_must_requirement[CORE-SEND-003-grpc]", NO_ERROR),
    (
        "1.0, everything off",
        "::TestRestStreaming::test_streaming_content_type",
        "The kit means to skip it, and fails on its way: it looks into the refusal of a stream that it has not read.",
    ),
    ("1.0", "::TestGrpcStatusCodes::test_version_not_supported_returns_unimplemented", PINNED_CODES),
    (
        "1.0, everything off",
        "::TestGrpcStatusCodes::test_unsupported_operation_returns_unimplemented",
        PINNED_CODES,
    ),
    (
        "1.0, everything off",
        "::TestGrpcStatusCodes::test_push_not_supported_returns_unimplemented",
        PINNED_CODES,
    ),
    (
        "0.3",
        "::test_task_state_transitions",
        "The kit sends without `blocking`, which waits for the turn, and expects the state from before the turn.",
    ),
    (
        "0.3, JSON-RPC",
        "::test_get_push_notification_config",
        "The kit lets the server name a configuration, and asks for one named `default`, which there is not.",
    ),
    (
        "0.3",
        "::test_agent_interfaces_structure",
        "The kit wants http:// before every address. That of gRPC has no scheme: the clients of the SDKs pass it to gRPC as it is.",
    ),
    (
        "0.3, HTTP+JSON",
        "::test_message_send_continue_with_contextid",
        "The kit's client loses the context of the task and makes one up. Another context must be refused.",
    ),
];

const NO_ERROR: &str = "The requirement is that a media type that the agent does not take is rejected; its row in the kit lacks \
                        the error, and fails a server that rejects it.";

/// One run of a kit.
struct Run {
    name: &'static str,
    card: &'static str,
    args: Args,
}

/// How a kit's runner is called.
enum Args {
    /// 1.0: with these arguments of pytest.
    Pytest(&'static [&'static str]),
    /// 0.3: for a category and its transports.
    Category(&'static str, &'static str),
}

/// Runs the kit in `kit` and prints the outcomes of its tests, as a table or as JSON.
pub(crate) fn run(kit: &Path, json: bool, root: &Path) -> Result<()> {
    let runs = if kit.join("tests/compatibility").is_dir() {
        V1
    } else if kit.join("tests/mandatory").is_dir() {
        V03
    } else {
        bail!("{} is not a checkout of a2a-tck (branch 1.0-dev or 0.3.x)", kit.display())
    };
    let home = target(root)?.join("tck");
    let manifest = kit.join("pyproject.toml");
    let manifest =
        fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let venv =
        Venv::find(&home, "the conformance kit", &[OsStr::new("--editable"), kit.as_os_str()], &manifest)?;
    fs::write(home.join("outcomes.py"), include_str!("tck/outcomes.py"))?;
    let binary = Binary::build(root, &home)?;

    let runs = runs.iter().map(|run| run.perform(kit, &venv, &binary, &home)).collect::<Result<_>>()?;
    Report::new(runs, KNOWN).finish(json)
}

// === impl Run ===

impl Run {
    const fn v03(name: &'static str, category: &'static str, transports: &'static str) -> Self {
        Self { name, card: NO_EXTENDED_CARD, args: Args::Category(category, transports) }
    }

    fn perform(&self, kit: &Path, venv: &Venv, binary: &Binary, home: &Path) -> Result<Results> {
        eprintln!("tck: {} …", self.name);
        let bridge = binary.serve(&self.config())?;
        let start = Instant::now();
        let log = home.join(format!("{}.log", self.name.replace(", ", "-").replace(' ', "-")));
        let outcomes = home.join("outcomes.json");
        // Left by an earlier run.
        let _ = fs::remove_file(&outcomes);
        let out = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = venv.python();
        self.call(&mut command, bridge.url());
        // The exit code says only whether a test failed.
        command
            .current_dir(kit)
            .env("PYTHONPATH", home)
            .env("PYTEST_ADDOPTS", "-p outcomes")
            .env("TALARIA_OUTCOMES", &outcomes)
            .env("TCK_STREAMING_TIMEOUT", STREAMING_TIMEOUT)
            .env("NO_PROXY", "127.0.0.1,localhost")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .status()
            .context("cannot start the kit")?;
        let outcomes =
            fs::read(&outcomes).with_context(|| format!("the kit did not run; see {}", log.display()))?;
        let outcomes: Outcomes = serde_json::from_slice(&outcomes)?;
        Ok(outcomes.of(self.name, start.elapsed().as_secs_f64(), KNOWN))
    }

    fn config(&self) -> String {
        let asks = match self.args {
            Args::Pytest(_) => "",
            Args::Category(..) => ASKS_BACK,
        };
        format!("{CONFIG}{}{asks}", self.card)
    }

    fn call(&self, command: &mut Command, url: &str) {
        command.arg("run_tck.py");
        match self.args {
            Args::Pytest(args) => command.args(["--sut-host", url, "--"]).args(args),
            Args::Category(category, transport) => {
                command.args(["--sut-url", url, "--category", category, "--transports", transport])
            }
        };
    }
}
