//! The three layers of checks.
//!
//! - `check` is for daily work and needs only the compiler, no network: format, lint, documentation, the tests of every
//!   crate.
//! - `test` is the gate that CI runs: `check`, then the whole product, the console in a browser, the real hermes-agent, the SDKs, the examples, and
//!   every known input of the fuzz targets.
//! - `release-check` has the checks that take too long for each change, or use random inputs: fuzzing, property tests with a
//!   new seed, the soak test, every view of the console, agent frameworks, LiteLLM behind talaria, the conformance kits and the corpus.
//!
//! The first two give the same result for the same tree: they use no random inputs (the seed of property tests is in
//! `.cargo/config.toml`), and no test is retried.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{cargo, read, run};
use crate::console::Journeys;
use crate::fuzz;
use crate::gate::{Step, Tally, count, run_all};
use crate::toolchain::Toolchain;
use crate::{acts, console, examples, guests, hermes, interop, litellm, provide, tck};

/// Minutes for each fuzz target before a release, by default.
const FUZZ_MINUTES: u32 = 5;
/// Cases of each property test before a release; 256 in the other layers.
const CASES: &str = "4096";

/// `cargo xtask check`.
pub(crate) fn check(root: &Path) -> Result<()> {
    run_all("check", &check_steps(), root)
}

/// `cargo xtask test`.
pub(crate) fn test(root: &Path) -> Result<()> {
    let before = work_tree(root);
    let mut steps = vec![step("install what tests need", "cargo xtask prepare", provide::everything)];
    steps.extend(check_steps());
    steps.extend([
        step("examples", "cargo xtask examples", examples::run_all),
        step("whole product", "cargo nextest run --workspace --profile product", |root| {
            count(&mut nextest(root, "product"))
        }),
        step("console in a browser", "cargo xtask console-test", |root| {
            console::test(Journeys::Gate, None, root)
        }),
        step("real hermes-agent", "cargo xtask hermes", |root| hermes::test(&[], root)),
        step("SDK clients", "cargo xtask interop", |root| interop::run(None, root)),
        step("fuzz corpora", "cargo xtask fuzz --replay", |root| fuzz::fuzz(&["--replay"], root)),
        step("nothing left behind", "git status", |root| {
            let after = work_tree(root);
            ensure!(after == before, "the tests changed the working tree:\n{}", after.unwrap_or_default());
            Ok(Tally::default())
        }),
    ]);
    run_all("test", &steps, root)
}

/// `cargo xtask test FILTER...`: only the tests whose names match, with any further arguments of the runner.
pub(crate) fn matching(filter: &[&str], root: &Path) -> Result<()> {
    provide::nextest()?;
    run(nextest(root, "default").args(filter))
}

/// `cargo xtask release-check [--minutes N] [--kit DIR]...`.
pub(crate) fn release(args: &[&str], root: &Path) -> Result<()> {
    let Plan { minutes, kits } = Plan::parse(args)?;
    let mut steps = vec![
        step("install what tests need", "cargo xtask prepare", provide::everything),
        step("soak", "cargo nextest run --workspace --profile soak", |root| {
            count(&mut nextest(root, "soak"))
        }),
        step("property tests, new seed", "cargo nextest run --workspace --profile check", |root| {
            let seed = new_seed();
            eprintln!("release-check: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={CASES} repeats this run");
            let mut command = nextest(root, "check");
            count(command.env("PROPTEST_RNG_SEED", seed.to_string()).env("PROPTEST_CASES", CASES))
        }),
        step("components rebuilt", "cargo xtask guests", |root| {
            let toolchain = Toolchain::find(&root.join("target/wasm-toolchain"))?;
            guests::reproduce(&root.join("guests"), &toolchain)
        }),
        step("every view of the console", "cargo xtask console-test", |root| {
            console::test(Journeys::All, None, root)
        }),
        step("fuzz", "cargo xtask fuzz --minutes N", move |root| {
            fuzz::fuzz(&["--minutes", &minutes.to_string()], root)
        }),
        step("frameworks", "cargo xtask interop --frameworks", |root| interop::frameworks(&[], root)),
        step("memory behind LiteLLM", "cargo xtask litellm", |root| {
            litellm::converse(root).map(|()| Tally::passed(1))
        }),
    ];
    if kits.is_empty() {
        eprintln!("release-check: skipping the conformance kits; check them out and pass --kit DIR for each");
    }
    for kit in kits {
        steps.push(match acts::is_corpus(&kit) {
            true => step("conformance corpus", "cargo xtask acts DIR", move |root| {
                acts::run(&kit, false, root).map(|()| Tally::passed(1))
            }),
            false => step("conformance kit", "cargo xtask tck DIR", move |root| {
                tck::run(&kit, false, root).map(|()| Tally::passed(1))
            }),
        });
    }
    run_all("release-check", &steps, root)
}

/// `cargo xtask lint`, including the entry points that only fuzz targets use.
pub(crate) fn lint(root: &Path) -> Result<Tally> {
    let lint = ["clippy", "--workspace", "--all-targets", "--", "--cfg", "fuzzing", "--deny", "warnings"];
    quiet(cargo().args(lint).current_dir(root))
}

/// `cargo xtask doc`.
pub(crate) fn doc(root: &Path) -> Result<Tally> {
    let mut command = cargo();
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").current_dir(root);
    quiet(&mut command)
}

fn check_steps() -> Vec<Step<'static>> {
    vec![
        step("format", "cargo xtask fmt", format),
        step("components fit sources", "cargo xtask guests --check", |root| {
            guests::check(&root.join("guests")).map(|()| Tally::default())
        }),
        step("console fits sources", "cargo xtask console --check", |root| {
            console::check(root).map(|()| Tally::default())
        }),
        step("logic of the executors", "cargo test --manifest-path guests/Cargo.toml --lib", |root| {
            guests::test(&root.join("guests"))
        }),
        step("lint", "cargo xtask lint", lint),
        step("documentation", "cargo xtask doc", doc),
        step("crates", "cargo nextest run --workspace --profile check", |root| {
            provide::nextest()?;
            count(&mut nextest(root, "check"))
        }),
        step("examples in documentation", "cargo test --workspace --doc", |root| {
            count(cargo().args(["test", "--workspace", "--doc"]).current_dir(root))
        }),
    ]
}

fn format(root: &Path) -> Result<Tally> {
    for folder in ["", "guests", "tests/fuzz"] {
        quiet(cargo().args(["fmt", "--all", "--check"]).current_dir(root.join(folder)))?;
    }
    Ok(Tally::default())
}

fn nextest(root: &Path, profile: &str) -> Command {
    let mut command = cargo();
    command.args(["nextest", "run", "--workspace", "--profile", profile]).current_dir(root);
    command
}

fn step<'a>(name: &'static str, alone: &'static str, run: impl Fn(&Path) -> Result<Tally> + 'a) -> Step<'a> {
    Step { name, alone, run: Box::new(run) }
}

/// Runs a command that counts no tests.
fn quiet(command: &mut Command) -> Result<Tally> {
    run(command).map(|()| Tally::default())
}

/// The changes that git sees; `None` outside of a checkout.
fn work_tree(root: &Path) -> Option<String> {
    read(Command::new("git").args(["status", "--porcelain"]).current_dir(root)).ok()
}

/// A different seed each time.
fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}

/// The arguments of `release-check`.
struct Plan {
    minutes: u32,
    kits: Vec<PathBuf>,
}

// === impl Plan ===

impl Plan {
    fn parse(args: &[&str]) -> Result<Self> {
        let mut plan = Self { minutes: FUZZ_MINUTES, kits: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--minutes" => {
                    let number =
                        args.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                    plan.minutes = number.context("--minutes takes a number of minutes, 1 or more")?;
                }
                "--kit" => {
                    let kit = args.next().context("--kit takes the folder of a conformance kit")?;
                    plan.kits.push(crate::absolute(kit)?);
                }
                other => bail!("release-check takes --minutes N and --kit DIR, not {other}"),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_arguments_of_a_release_check() {
        assert_eq!(Plan::parse(&[]).unwrap().minutes, FUZZ_MINUTES);
        assert_eq!(Plan::parse(&["--minutes", "1"]).unwrap().minutes, 1);
        for (args, says) in [
            (&["--minutes", "0"][..], "--minutes takes"),
            (&["--minutes"], "--minutes takes"),
            (&["--kit"], "--kit takes"),
            (&["--kit", "/no/such/folder"], "cannot find the folder"),
            (&["all"], "release-check takes"),
        ] {
            let error = Plan::parse(args).err().unwrap().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
