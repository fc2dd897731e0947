//! `cargo xtask fuzz`: coverage-guided fuzzing of the parsers that face the network.
//!
//! libFuzzer with a stable compiler: the counters are LLVM flags, which `tests/fuzz/rustc` adds to our own crates, and a build
//! script compiles the fuzzer, which is C++. There are no sanitizers, which need a nightly compiler; the host forbids
//! `unsafe`, so the findings are panics, overflows, endless loops and broken promises.
//!
//! `target/fuzz` holds the build, which has flags of its own, the inputs that reached new code, from which the next run
//! continues, and the inputs that made a target fail. The seeds in `tests/fuzz/corpus` are only read.
//!
//! `--replay` runs the committed seeds unchanged, so it gives the same result everywhere; the gate does this. A finding that
//! is committed as a seed is a test from then on. Mutation is random, and is for finding bugs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::command::{cargo, run};
use crate::gate::Tally;
use crate::provide;

/// Minutes for each target, by default.
const MINUTES: u32 = 1;
/// The longest input, in bytes. Below the 4 KiB that the redactor holds back, so that its promise about streams is exact.
const LONGEST: usize = 2048;
/// Seconds after which an input is a finding: these parsers take microseconds.
const SLOWEST: u32 = 10;
/// MiB of memory above which an input is a finding.
const MEMORY: u32 = 1024;
/// Lines shown of a failure.
const SHOWN: usize = 40;

/// What to run and how.
#[derive(Debug, PartialEq)]
struct Plan {
    targets: Vec<String>,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// The committed seeds, unchanged.
    Replay,
    /// New inputs, for this many minutes per target.
    Mutate(u32),
}

/// Builds and runs the named targets, or all, one after the other. Counts targets, or replayed seeds.
pub(crate) fn fuzz(args: &[&str], root: &Path) -> Result<Tally> {
    let folder = root.join("tests/fuzz");
    let plan = Plan::parse(args, &targets(&folder)?)?;
    let target = root.join("target/fuzz");
    eprintln!("fuzz: building (takes minutes the first time)");
    let start = Instant::now();
    build(&folder, &target)?;
    eprintln!("fuzz: built in {:.1} s", start.elapsed().as_secs_f64());
    let mut tally = Tally::default();
    for name in &plan.targets {
        let summary = attack(&folder, &target, name, plan.mode)?;
        let passed = match plan.mode {
            Mode::Replay => files(&folder.join("corpus").join(name))?.len(),
            Mode::Mutate(_) => 1,
        };
        eprintln!("fuzz: {name}: {summary}");
        tally += Tally::passed(passed);
    }
    Ok(tally)
}

// === impl Plan ===

impl Plan {
    fn parse(args: &[&str], known: &BTreeSet<String>) -> Result<Self> {
        let mut plan = Self { targets: Vec::new(), mode: Mode::Mutate(MINUTES) };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if *arg == "--minutes" {
                let number = args.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                plan.mode = Mode::Mutate(number.context("--minutes takes a number of minutes, 1 or more")?);
            } else if *arg == "--replay" {
                plan.mode = Mode::Replay;
            } else if known.contains(*arg) {
                plan.targets.push((*arg).to_owned());
            } else {
                bail!(
                    "there is no target {arg}; the targets are {}",
                    Vec::from_iter(known.iter().cloned()).join(", ")
                );
            }
        }
        if plan.targets.is_empty() {
            plan.targets.extend(known.iter().cloned());
        }
        Ok(plan)
    }
}

/// The targets: the files and folders of `src/bin`.
fn targets(folder: &Path) -> Result<BTreeSet<String>> {
    let bins = folder.join("src/bin");
    let entries = fs::read_dir(&bins).with_context(|| format!("cannot read {}", bins.display()))?;
    let mut targets = BTreeSet::new();
    for entry in entries {
        let path = entry?.path();
        targets.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(targets)
}

fn build(folder: &Path, target: &Path) -> Result<()> {
    provide::cpp_compiler()?;
    run(cargo()
        .args(["build", "--release", "--quiet", "--target-dir"])
        .arg(target)
        .env("RUSTC_WRAPPER", folder.join("rustc"))
        .current_dir(folder))
}

/// Runs one target from its seeds and, to find new inputs, from the findings of earlier runs. Returns a line of libFuzzer's
/// about the result.
fn attack(folder: &Path, target: &Path, name: &str, mode: Mode) -> Result<String> {
    let (grown, findings) = (target.join("corpus").join(name), target.join("findings").join(name));
    for folder in [&grown, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let log = target.join(format!("{name}.log"));
    let mut command = Command::new(target.join("release").join(name));
    match mode {
        Mode::Replay => command.arg("-runs=0"),
        Mode::Mutate(minutes) => command.arg(format!("-max_total_time={}", minutes * 60)).arg(&grown),
    };
    command.arg(folder.join("corpus").join(name));
    // The targets of one crate share a dictionary.
    let words = name.split('_').next().map(|prefix| folder.join(format!("{prefix}.dict")));
    command.args(words.filter(|words| words.is_file()).map(|words| format!("-dict={}", words.display())));
    command.arg(format!("-artifact_prefix={}/", findings.display())).args([
        format!("-max_len={LONGEST}"),
        format!("-timeout={SLOWEST}"),
        format!("-rss_limit_mb={MEMORY}"),
    ]);
    command.stderr(File::create(&log).with_context(|| format!("cannot write {}", log.display()))?);
    let before = files(&findings)?;
    let done = run(&mut command);
    let output = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let output = String::from_utf8_lossy(&output);
    done.with_context(|| {
        // Starts at the panic, or at libFuzzer's own error.
        let at = output.find("panicked at").or_else(|| output.find("==")).unwrap_or_default();
        eprintln!("{}", output.get(at..).unwrap_or_default().lines().take(SHOWN).collect::<Vec<_>>().join("\n"));
        let new = files(&findings).unwrap_or_default().difference(&before).next().cloned();
        format!(
            "{name} fails for {}; fix it, and keep the input as a seed in tests/fuzz/corpus/{name} (the whole \
             output is in {})",
            new.unwrap_or(findings).display(),
            log.display()
        )
    })?;
    let last = output.lines().rfind(|line| line.contains(" cov: ")).unwrap_or("no coverage reported");
    Ok(last.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> BTreeSet<String> {
        targets(&crate::repository().unwrap().join("tests/fuzz")).unwrap()
    }

    #[test]
    fn every_target_has_seeds() {
        let corpus = crate::repository().unwrap().join("tests/fuzz/corpus");
        let seeded: BTreeSet<String> = files(&corpus)
            .unwrap()
            .iter()
            .filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()))
            .collect();
        assert_eq!(seeded, known());
        assert!(!seeded.is_empty());
    }

    #[test]
    fn runs_all_targets_unless_some_are_named() {
        let plan = |args: &[&str]| Plan::parse(args, &known()).unwrap();
        let (all, one) = (Vec::from_iter(known()), vec!["a2a_rest".to_owned()]);
        assert_eq!(plan(&[]), Plan { targets: all.clone(), mode: Mode::Mutate(MINUTES) });
        assert_eq!(plan(&["--replay"]), Plan { targets: all, mode: Mode::Replay });
        assert_eq!(plan(&["a2a_rest", "--minutes", "5"]), Plan { targets: one, mode: Mode::Mutate(5) });
    }

    #[test]
    fn an_unknown_argument_is_named_in_the_error() {
        for (args, says) in [
            (["a2a", "--minutes", "5"], "there is no target a2a; the targets are a2a_grpc, "),
            (["a2a_rest", "--minutes", "soon"], "--minutes takes a number"),
            (["a2a_rest", "--minutes", "0"], "--minutes takes a number"),
            (["a2a_rest", "a2a_words", "--minutes"], "--minutes takes a number"),
        ] {
            let error = Plan::parse(&args, &known()).err().unwrap().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
