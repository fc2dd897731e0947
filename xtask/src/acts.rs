//! `cargo xtask acts DIR`: the conformance corpus of A2A (ACTS) against the real binary, on every binding of its card.
//!
//! DIR is a checkout of a2aproject/A2A that has `tests/acts`; nothing of it is in this repository. The runner is
//! `tests/acts`, in Python because the normative messages of gRPC come with a2a-sdk. Three servers run side by side, since
//! the corpus has tests for what a card offers and for what it does not, and tests with credentials; each test runs against
//! the first server that it is for. The tests of clients run the client of `talaria send`.
//!
//! The tests of the runner itself run first: a runner that lets everything pass would be worse than none. A test of the
//! corpus that fails for a good reason is in [`KNOWN`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::bridge::Binary;
use crate::command::{cargo, read, run as show, target};
use crate::kit::{Known, Outcomes, Report};
use crate::venv::Venv;

/// What all servers have in common.
const CONFIG: &str = r#"
[push]
allow_private = true
[executors]
default = "conformance"
[store]
url = "memory:"
[a2a]
reply = "task"
"#;

const EVERYTHING: &str = "[a2a.card]\nstreaming = true\npush_notifications = true\n";
const NOTHING: &str = "[a2a.card]\nstreaming = false\npush_notifications = false\nextended_card = false\n";
/// Callers with names, for whom there is an extended card.
const SECURED: &str = r#"
[a2a.card]
streaming = true
push_notifications = true
extended_card = true
[a2a.auth]
tokens = [
    { name = "one", token = { env = "ONE" } },
    { name = "other", token = { env = "OTHER" } },
]
"#;
const TOKENS: [(&str, &str); 2] = [("ONE", "acts-token-one"), ("OTHER", "acts-token-other")];

/// The levels, in the order of the table.
const LEVELS: [&str; 3] = ["must", "should", "may"];
const BINDINGS: [&str; 4] = ["JSON-RPC", "HTTP+JSON", "gRPC", "client"];

/// Tests that fail for a good reason.
const KNOWN: &[Known] = &[
    (
        "",
        "CARD-DISC-002",
        "The draft calls the binding `REST`; its name in the specification is `HTTP+JSON`.",
    ),
    ("", "CORE-CAP-001", NO_PUSH),
    ("", "PUSH-CFG-004", NO_PUSH),
    (
        "",
        "CORE-ERR-007",
        "The draft expects an object as the data of an error; in the specification it is a list, and JSONRPC-ERR-003 expects \
         one.",
    ),
    (
        "",
        "CORE-HIST-005",
        "The draft counts the messages of the user alone; the agent's questions between them are in the history too.",
    ),
    ("", "DM-ART-003", PARTS),
    ("", "DM-ART-004", PARTS),
    (
        "",
        "DM-FMT-003",
        "The answer has no task, as the draft expects, and has the context that was made for it: the specification says that \
         it must.",
    ),
    (
        "JSON-RPC",
        "SEC-AUTH-002",
        "The draft expects 403 for a caller who may not do this. A caller with a token may do everything; an unknown token \
         gets 401.",
    ),
    (
        "HTTP+JSON",
        "SEC-AUTH-006",
        "The draft expects an error for the public card, which everybody may read.",
    ),
    (
        "HTTP+JSON",
        "REST-PD-001",
        "The draft expects problem details; the specification has had `google.rpc.Status` since 1.0.",
    ),
    ("client", "CLIENT-AUTH-001", CARDS),
    ("client", "CLIENT-CAP-001", CARDS),
];

const NO_PUSH: &str = "The draft expects UnsupportedOperationError; the specification has PushNotificationNotSupportedError \
                       for this.";
const PARTS: &str =
    "The draft expects the file of 0.3; in 1.0 a part has `raw` or `url`, with `filename` and `mediaType`.";
const CARDS: &str = "The client reads from a card which interfaces there are and whether the agent streams, and nothing else; \
                     it asks an agent that does not stream for no stream, as its own tests show.";

/// Whether a folder has the corpus.
pub(crate) fn is_corpus(folder: &Path) -> bool {
    folder.join("tests/acts/suite.acts.yaml").is_file()
}

/// Runs the corpus in `corpus` and prints the outcomes of its tests, as a table or as JSON.
pub(crate) fn run(corpus: &Path, json: bool, root: &Path) -> Result<()> {
    ensure!(
        is_corpus(corpus),
        "{} is not a checkout of a2aproject/A2A with tests/acts (branch conformance-spec)",
        corpus.display()
    );
    let home = target(root)?.join("acts");
    let runner = root.join("tests/acts");
    let venv = Venv::pinned(&home, &runner.join("requirements.txt"), "a2a-sdk")?;
    // The bridge's webhooks are received as in the tests of the SDKs.
    let modules = std::env::join_paths([&runner, &root.join("tests/interop")])?;
    let python = || {
        let mut command = venv.python();
        command
            .env("PYTHONPATH", &modules)
            .env("NO_PROXY", "127.0.0.1,localhost")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    read(python().args(["-m", "unittest", "test_acts"])).context("the runner fails its own tests")?;

    let binary = Binary::build(root, &home)?;
    let client = client(root)?;
    let everything = binary.serve(&format!("{CONFIG}{EVERYTHING}"))?;
    let secured = binary.serve_with(&format!("{CONFIG}{SECURED}"), &TOKENS)?;
    let nothing = binary.serve(&format!("{CONFIG}{NOTHING}"))?;
    let out = home.join("outcomes.json");
    // Left by an earlier run.
    let _ = fs::remove_file(&out);
    let mut command = python();
    command.arg(runner.join("acts.py")).arg(corpus).arg(&out);
    command.args(["--server", everything.url(), "--server", secured.url()]);
    command.args(TOKENS.iter().flat_map(|(_, token)| ["--token", token]));
    command.args(["--server", nothing.url(), "--client"]).arg(client);
    // The table is for standard output.
    show(command.stdin(Stdio::null()).stdout(std::io::stderr()))?;

    let rows = fs::read(&out).with_context(|| format!("the runner left no {}", out.display()))?;
    let mut rows: BTreeMap<String, Row> = serde_json::from_slice(&rows)?;
    let names = BINDINGS.iter().flat_map(|binding| LEVELS.map(|level| format!("{binding}, {level}")));
    let runs = names.filter_map(|name| {
        let Row { seconds, outcomes } = rows.remove(&name)?;
        Some(outcomes.of(&name, seconds, KNOWN))
    });
    Report::new(runs.collect(), KNOWN).finish(json)
}

/// One level of one binding.
#[derive(serde::Deserialize)]
struct Row {
    seconds: f64,
    #[serde(flatten)]
    outcomes: Outcomes,
}

/// Builds the program that calls an agent with the client of `talaria send`.
fn client(root: &Path) -> Result<PathBuf> {
    let build = ["build", "--package", "talaria-client", "--example", "call"];
    show(cargo().args(build).current_dir(root))?;
    Ok(target(root)?.join("debug/examples/call"))
}
