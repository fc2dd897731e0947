//! `cargo xtask VERB`: the project's own commands. CI runs the same verbs, so that what passes here passes there.
//!
//! Progress goes to standard error. A verb that fails ends with status 1, one that is not understood with 64.
#![forbid(unsafe_code)]

mod bridge;
mod command;
mod debian;
mod examples;
mod fuzz;
mod guests;
mod hermes;
mod interop;
mod node;
mod tck;
mod test;
mod toolchain;
mod venv;

use std::env;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::command::{cargo, run, target};
use crate::toolchain::Toolchain;

const USAGE: &str = "\
usage: cargo xtask VERB

  guests [DIR]          build the components of the workspace DIR (guests) into DIR/dist
  guests --check [DIR]  fail if DIR/dist is older than its sources; builds nothing
  examples              build the example executors and new projects, and run their tests
  fmt                   format everything
  lint                  clippy, warnings are errors
  doc                   API documentation, warnings are errors
  test                  everything that CI checks
  test FILTER...        only the tests that match
  interop [NAME]        the clients of the SDKs against the binary: python_1, python_03, js
  tck DIR               the conformance kit that is checked out at DIR against the binary
  tck DIR --output json
  hermes [FILTER...]    the executors against the real hermes-agent, installed on the first run
  registry              fetch Debian's docker-registry for the test of components that are pulled
  clock                 fetch Debian's libfaketime for the test of a workspace over an hour
  fuzz [TARGET...]      run fuzz targets, 60 seconds each or as --seconds N says
  bench [ARGS...]       build for release and run the benchmarks
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
            ["examples"] => examples::run_all(&root),
            ["fmt"] => fmt(&root),
            ["lint"] => test::run_step(&test::LINT, &root),
            ["doc"] => doc(&root),
            ["test"] => test::all(&root),
            ["test", filter @ ..] => test::matching(filter, &root),
            ["interop"] => interop::run(None, &root),
            ["interop", name] => interop::run(Some(name), &root),
            ["tck", kit] => absolute(kit).and_then(|kit| tck::run(&kit, false, &root)),
            ["tck", kit, "--output", "json"] => absolute(kit).and_then(|kit| tck::run(&kit, true, &root)),
            ["hermes", filter @ ..] => hermes::test(filter, &root),
            ["registry"] => debian::fetch(debian::REGISTRY, &root),
            ["clock"] => debian::fetch(debian::CLOCK, &root),
            ["fuzz", args @ ..] => fuzz::fuzz(args, &root),
            ["bench", args @ ..] => bench(args, &root),
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

/// The folder of the workspace that this program was started from, also when its binary is shared by several.
fn repository() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    absolute(Path::new(&manifest).join(".."))
}

fn absolute(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    path.canonicalize().with_context(|| format!("no folder {}", path.display()))
}

fn build_guests(guests: &Path, root: &Path) -> Result<()> {
    guests::build(guests, &Toolchain::find(&root.join("target/wasm-toolchain"))?)
}

fn fmt(root: &Path) -> Result<()> {
    run(cargo().args(["fmt", "--all"]).current_dir(root))?;
    run(cargo().args(["fmt", "--all"]).current_dir(root.join("guests")))?;
    run(cargo().arg("fmt").current_dir(root.join("tests/fuzz")))
}

fn doc(root: &Path) -> Result<()> {
    run(cargo()
        .args(["doc", "--workspace", "--no-deps"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(root))
}

fn bench(args: &[&str], root: &Path) -> Result<()> {
    run(cargo()
        .args(["build", "--release", "--package", "talaria", "--package", "talaria-bench"])
        .current_dir(root))?;
    // Not by `cargo run`: for that package alone dependencies have other features, and would be compiled once more.
    run(Command::new(target(root)?.join("release/talaria-bench")).args(args).current_dir(root))
}
