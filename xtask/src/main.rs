//! `cargo xtask VERB`: the project's own commands. CI runs the same verbs, so a change that passes here passes there.
//!
//! Progress goes to standard error. The exit status is 1 if a verb fails, and 64 if it is unknown.
#![forbid(unsafe_code)]

mod acts;
mod bench;
mod bridge;
mod command;
mod console;
mod debian;
mod examples;
mod fuzz;
mod gate;
mod guests;
mod hermes;
mod interop;
mod kit;
mod layers;
mod litellm;
mod node;
mod provide;
mod tck;
mod toolchain;
mod venv;

use std::env;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::command::{cargo, run};
use crate::console::Journeys;
use crate::gate::Tally;
use crate::toolchain::Toolchain;

const USAGE: &str = "\
usage: cargo xtask VERB

  check                 format, lint, documentation, the tests of every crate; downloads nothing
  test                  the gate: `check`, then the whole product, the real hermes-agent, SDKs, examples, fuzz corpora
  test FILTER...        only the tests whose names match
  release-check [--minutes N] [--kit DIR]...
                        too slow for each change: soak, fuzzing (N minutes per target), frameworks, conformance kits

  prepare               install what the tests need; `test` does so too
  fmt                   format everything
  lint                  clippy, warnings are errors
  doc                   API documentation, warnings are errors
  deny                  licences, duplicates and advisories; needs cargo-deny and downloads the advisory database
  guests [DIR]          build the components of the workspace DIR (default: guests) into DIR/dist
  guests --check [DIR]  fail if DIR/dist does not match its sources; builds nothing
  console               build host/console into host/console/dist
  console --check       fail if host/console/dist does not match its sources; builds nothing
  console-test [FILTER] drive the console in a browser against the binary; installs chromium on the first run
  examples              build the example executors and new projects, and run their tests
  hermes [FILTER...]    the executors against the real hermes-agent, installed on the first run
  interop [NAME]        the clients of the SDKs against the binary: python_1, python_03, js; the binary in front of
                        agents: agents
  interop --frameworks [NAME] [--stream FORM] [--output json]
                        agent frameworks against the binary, see docs/interop.md
  litellm               a conversation through LiteLLM's proxy, installed on the first run
  tck DIR [--output json]
                        the conformance kit checked out at DIR against the binary
  acts DIR [--output json]
                        the conformance corpus checked out at DIR against the binary
  fuzz [TARGET...] [--minutes N]
                        search for inputs that break a parser, for 1 or N minutes per target
  fuzz [TARGET...] --replay
                        run the known inputs only
  bench [ARGS...]       build what is shipped and run the benchmarks
  bench --against FILE [--rounds N]
                        compare with another binary of the product, in alternating rounds
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match repository() {
        Ok(root) => match args.as_slice() {
            ["guests", "--check"] => guests::check(&root.join("guests")),
            ["guests", "--check", dir] => absolute(dir).and_then(|dir| guests::check(&dir)),
            ["guests"] => build_guests(&root.join("guests"), &root),
            ["guests", dir] if !dir.starts_with('-') => {
                absolute(dir).and_then(|dir| build_guests(&dir, &root))
            }
            ["console"] => console::build(&root),
            ["console", "--check"] => console::check(&root),
            ["console-test"] => judge(console::test(Journeys::All, None, &root)),
            ["console-test", filter] => judge(console::test(Journeys::All, Some(filter), &root)),
            ["check"] => layers::check(&root),
            ["test"] => layers::test(&root),
            ["test", filter @ ..] => layers::matching(filter, &root),
            ["release-check", args @ ..] => layers::release(args, &root),
            ["prepare"] => judge(provide::everything(&root)),
            ["examples"] => judge(examples::run_all(&root)),
            ["fmt"] => fmt(&root),
            ["lint"] => judge(layers::lint(&root)),
            ["doc"] => judge(layers::doc(&root)),
            ["deny"] => deny(&root),
            ["interop"] => judge(interop::run(None, &root)),
            ["interop", "--frameworks", args @ ..] => judge(interop::frameworks(args, &root)),
            ["interop", name] => judge(interop::run(Some(name), &root)),
            ["litellm"] => litellm::converse(&root),
            ["tck", kit] => absolute(kit).and_then(|kit| tck::run(&kit, false, &root)),
            ["tck", kit, "--output", "json"] => absolute(kit).and_then(|kit| tck::run(&kit, true, &root)),
            ["acts", corpus] => absolute(corpus).and_then(|corpus| acts::run(&corpus, false, &root)),
            ["acts", corpus, "--output", "json"] => {
                absolute(corpus).and_then(|corpus| acts::run(&corpus, true, &root))
            }
            ["hermes", filter @ ..] => judge(hermes::test(filter, &root)),
            ["fuzz", args @ ..] => judge(fuzz::fuzz(args, &root)),
            ["bench", args @ ..] => bench::run_all(args, &root),
            ["help" | "--help" | "-h"] => {
                io::stdout().write_all(USAGE.as_bytes()).context("cannot write to standard output")
            }
            _ => {
                eprint!("{USAGE}");
                return ExitCode::from(64);
            }
        },
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the workspace that this program was started from, even if several checkouts share its binary.
fn repository() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    absolute(Path::new(&manifest).join(".."))
}

fn absolute(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    path.canonicalize().with_context(|| format!("cannot find the folder {}", path.display()))
}

fn build_guests(guests: &Path, root: &Path) -> Result<()> {
    guests::build(guests, &Toolchain::find(&root.join("target/wasm-toolchain"))?)
}

fn fmt(root: &Path) -> Result<()> {
    run(cargo().args(["fmt", "--all"]).current_dir(root))?;
    run(cargo().args(["fmt", "--all"]).current_dir(root.join("guests")))?;
    run(cargo().arg("fmt").current_dir(root.join("tests/fuzz")))
}

/// Fails if any test failed.
fn judge(done: Result<Tally>) -> Result<()> {
    let Tally { failed, .. } = done?;
    ensure!(failed == 0, "{failed} failed");
    Ok(())
}

/// Runs cargo-deny if it is installed. It is not part of any layer, because the advisory database is not reachable from
/// everywhere; the GitHub workflow runs it. The tests in tests/architecture check everything but the advisories.
fn deny(root: &Path) -> Result<()> {
    let installed = command::read(cargo().args(["deny", "--version"])).is_ok();
    ensure!(installed, "cargo-deny is not installed; install it with `cargo install --locked cargo-deny`");
    run(cargo().args(["deny", "check"]).current_dir(root))
}
