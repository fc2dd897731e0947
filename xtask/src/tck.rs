//! `cargo xtask tck DIR`: a conformance kit against the real binary.
//!
//! DIR is a checkout of a2aproject/a2a-tck, of 1.0 or of 0.3; its tree says which. The kit gets an environment of its own
//! and is run by its own runner, once for every card or category that it needs, each time with a new server. A plugin
//! (`outcomes.py`) reports the outcome of every test, in the same form for both kits.
//!
//! A test that fails because of the kit is in [`KNOWN`], with the reason. Any other failure fails the command, and so does a
//! known one that passes: then the list must be corrected.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::bridge::Binary;
use crate::command::target;
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
    Run {
        name: "0.3, JSON-RPC, mandatory",
        card: NO_EXTENDED_CARD,
        args: Args::Category("mandatory", "jsonrpc"),
    },
    Run {
        name: "0.3, JSON-RPC, capabilities",
        card: NO_EXTENDED_CARD,
        args: Args::Category("capabilities", "jsonrpc"),
    },
    Run {
        name: "0.3, HTTP+JSON, mandatory",
        card: NO_EXTENDED_CARD,
        args: Args::Category("mandatory", "rest"),
    },
    Run {
        name: "0.3, HTTP+JSON, capabilities",
        card: NO_EXTENDED_CARD,
        args: Args::Category("capabilities", "rest"),
    },
];

/// Why codes of gRPC differ.
const PINNED_CODES: &str =
    "The kit has the codes of 1.0.0. Since 1.0.1 what is not supported is FAILED_PRECONDITION.";

/// Failures that are the kit's fault: the beginning of the run's name, the end of the test's name, the reason.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "1.0",
        "::test_agent_card_validates_against_schema",
        "The kit asks for the card without a version, and gets the one that serves both. Who says `A2A-Version: 1.0` gets \
         no field of 0.3.",
    ),
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
    /// 0.3: for a category and a transport.
    Category(&'static str, &'static str),
}

/// The output of the plugin.
#[derive(Deserialize)]
struct Outcomes {
    passed: Vec<Test>,
    failed: Vec<Test>,
    error: Vec<Test>,
    skipped: Vec<Test>,
    xfailed: Vec<Test>,
    xpassed: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    test: String,
    said: String,
}

/// The output of the command.
#[derive(Serialize)]
struct Report {
    runs: Vec<Results>,
}

#[derive(Serialize)]
struct Results {
    run: &'static str,
    passed: usize,
    failed: usize,
    skipped: usize,
    xfailed: usize,
    seconds: f64,
    failures: Vec<Failure>,
    /// Tests that passed although they are known to fail.
    mended: Vec<String>,
}

#[derive(Serialize)]
struct Failure {
    test: String,
    /// Why it is known to fail.
    known: Option<&'static str>,
    said: String,
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
    let report = Report { runs };
    let text = if json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    writeln!(io::stdout(), "{}", text.trim_end())?;
    report.judge()
}

// === impl Run ===

impl Run {
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
        Ok(outcomes.of(self.name, start.elapsed().as_secs_f64()))
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

// === impl Outcomes ===

impl Outcomes {
    fn of(self, run: &'static str, seconds: f64) -> Results {
        let mended = self.passed.iter().map(|test| &test.test).filter(|test| known(run, test).is_some());
        Results {
            run,
            mended: mended.cloned().collect(),
            passed: self.passed.len() + self.xpassed.len(),
            skipped: self.skipped.len(),
            xfailed: self.xfailed.len(),
            seconds,
            failed: self.failed.len() + self.error.len(),
            failures: self
                .failed
                .into_iter()
                .chain(self.error)
                .map(|Test { test, said }| Failure { known: known(run, &test), test, said })
                .collect(),
        }
    }
}

/// Why a test is known to fail.
fn known(run: &str, test: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(of, name, _)| run.starts_with(of) && test.ends_with(name)).map(|(.., why)| *why)
}

// === impl Report ===

impl Report {
    fn judge(&self) -> Result<()> {
        let new =
            self.runs.iter().flat_map(|run| &run.failures).filter(|failure| failure.known.is_none()).count();
        let mended = self.runs.iter().map(|run| run.mended.len()).sum::<usize>();
        ensure!(new == 0, "{new} tests failed that are not known to fail");
        ensure!(
            mended == 0,
            "{mended} tests passed that are known to fail: correct the list in xtask/src/tck.rs"
        );
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| kit | passed | failed | skipped | xfail | time |\n|---|---|---|---|---|---|")?;
        for Results { run, passed, failed, skipped, xfailed, seconds, .. } in &self.runs {
            writeln!(f, "| {run} | {passed} | {failed} | {skipped} | {xfailed} | {seconds:.0} s |")?;
        }
        for run in &self.runs {
            for Failure { test, known, said } in &run.failures {
                let name = test.rsplit("::").next().unwrap_or(test);
                match known {
                    Some(known) => writeln!(f, "\n- {}: `{name}`: {known}", run.run)?,
                    None => writeln!(f, "\n- {}: `{test}` failed:\n\n{said}", run.run)?,
                }
            }
            for test in &run.mended {
                writeln!(f, "\n- {}: `{test}` passed, and is known to fail", run.run)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(passed: &[&str], failed: &[&str]) -> Outcomes {
        let tests = |names: &[&str]| {
            names.iter().map(|test| Test { test: (*test).into(), said: "why".into() }).collect::<Vec<_>>()
        };
        Outcomes {
            passed: tests(passed),
            failed: tests(failed),
            error: Vec::new(),
            skipped: tests(&["s"]),
            xfailed: Vec::new(),
            xpassed: Vec::new(),
        }
    }

    const KNOWN_TEST: &str = "a.py::TestCard::test_agent_card_validates_against_schema";

    #[test]
    fn a_known_failure_passes_and_is_explained() {
        let report =
            Report { runs: vec![outcomes(&["a.py::one"], &[KNOWN_TEST]).of("1.0, everything on", 1.0)] };
        report.judge().unwrap();
        let text = report.to_string();
        assert!(text.contains("| 1.0, everything on | 1 | 1 | 1 | 0 | 1 s |"), "{text}");
        assert!(text.contains("`test_agent_card_validates_against_schema`: The kit asks"), "{text}");
    }

    #[test]
    fn a_new_failure_fails_and_shows_the_output_of_the_kit() {
        let report = Report { runs: vec![outcomes(&[], &["a.py::new"]).of("1.0, everything on", 1.0)] };
        assert!(report.judge().unwrap_err().to_string().contains("1 tests failed"));
        assert!(report.to_string().contains("`a.py::new` failed:\n\nwhy"));
    }

    #[test]
    fn a_known_failure_of_one_version_is_new_in_another() {
        let report = Report { runs: vec![outcomes(&[], &[KNOWN_TEST]).of("0.3, JSON-RPC, mandatory", 1.0)] };
        report.judge().unwrap_err();
    }

    #[test]
    fn a_known_failure_that_passes_must_leave_the_list() {
        let report = Report { runs: vec![outcomes(&[KNOWN_TEST], &[]).of("1.0, everything on", 1.0)] };
        assert!(report.judge().unwrap_err().to_string().contains("correct the list"));
    }
}
