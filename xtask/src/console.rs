//! `cargo xtask console`: the console of the admin server, built, checked, and driven in a browser.
//!
//! The build is committed in `host/console/dist`, so that `cargo run` needs no node, and `dist/SOURCES.sha256` has a digest of
//! all its inputs and one of each file, as `guests/dist/SOURCES` has. The check compares digests and never builds.
//!
//! The build runs in a copy below the target folder, with the packages of the lock file, so that the tree stays as it is. The
//! tests of `tests/console` drive the real binary in Debian's Chromium. A journey that fails leaves a picture of the page and the
//! log of the binary beside the screenshots, in `target/console/screenshots`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::bridge::Binary;
use crate::command::{read, target};
use crate::debian;
use crate::gate::Tally;
use crate::guests::{digest_of, ensure_same, files, relative, write_if_changed};
use crate::node::Node;

/// What is built, in the order of the record. A file of another name would not be embedded in the binary.
const BUILT: [&str; 3] = ["assets/app.css", "assets/app.js", "index.html"];
const RECORD: &str = "SOURCES.sha256";

/// The names of the browser; Debian's comes first.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Which of the journeys to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journeys {
    /// The three that run with every change.
    Gate,
    /// All of them.
    All,
}

/// A line that the tests print.
#[derive(Deserialize)]
struct Line {
    journey: String,
    seconds: f64,
    /// What it measured.
    note: Option<String>,
    error: Option<String>,
}

/// Builds the console and writes its `dist/`.
pub(crate) fn build(root: &Path) -> Result<()> {
    let console = root.join("host/console");
    let home = target(root)?.join("console");
    let node = Node::find(&home)?;
    let work = node.install(&home, &console)?;
    for stale in ["src", "dist"] {
        let stale = work.join(stale);
        if stale.is_dir() {
            fs::remove_dir_all(&stale).with_context(|| format!("cannot clear {}", stale.display()))?;
        }
    }
    for input in inputs(&console)? {
        let copy = work.join(relative(&input, &console)?);
        write_if_changed(&copy, &fs::read(&input)?)?;
    }
    eprintln!("console: building with {}", read(node.command("node").arg("--version"))?);
    read(node.command("npm").args(["run", "build"]).current_dir(&work))?;

    let (built, dist) = (work.join("dist"), console.join("dist"));
    let found = files(&built, &[])?.iter().map(|file| relative(file, &built)).collect::<Result<Vec<_>>>()?;
    ensure!(found == BUILT, "the build made {}, not {}", found.join(", "), BUILT.join(", "));
    for file in BUILT {
        let bytes = fs::read(built.join(file))?;
        write_if_changed(&dist.join(file), &bytes)?;
        eprintln!("console: {file} {} bytes", bytes.len());
    }
    write_if_changed(&dist.join(RECORD), record(&console)?.as_bytes())
}

/// Fails if `dist/` was not built from the present sources.
pub(crate) fn check(root: &Path) -> Result<()> {
    const FIX: &str = "run `cargo xtask console` and commit host/console/dist";
    let console = root.join("host/console");
    let path = console.join("dist").join(RECORD);
    let recorded =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}; {FIX}", path.display()))?;
    ensure_same("host/console/dist", &recorded, &record(&console)?, FIX)
}

/// Installs the browser and the packages of the tests.
pub(crate) fn prepare(root: &Path) -> Result<(PathBuf, Node, PathBuf)> {
    let home = target(root)?.join("console");
    let node = Node::find(&home)?;
    let packages = node.install(&home, &root.join("tests/console"))?;
    Ok((browser()?, node, packages))
}

/// `cargo xtask console-test [FILTER]`: the journeys whose names contain the filter.
pub(crate) fn test(journeys: Journeys, filter: Option<&str>, root: &Path) -> Result<Tally> {
    let (browser, node, packages) = prepare(root)?;
    let home = target(root)?.join("console");
    let scripts = root.join("tests/console");
    // Packages are looked up beside the scripts.
    for script in files(&scripts, &[&scripts.join("node_modules")])? {
        if script.extension().is_some_and(|extension| extension == "mjs") {
            write_if_changed(&packages.join(relative(&script, &scripts)?), &fs::read(&script)?)?;
        }
    }
    let binary = Binary::build(root, &home)?;
    let mut command = node.command("node");
    command
        .arg(packages.join("main.mjs"))
        .args((journeys == Journeys::Gate).then_some("--gate"))
        .args(filter)
        .env("TALARIA", binary.program())
        .env("TALARIA_CACHE", binary.cache())
        .env("TALARIA_ROOT", root)
        .env("CHROMIUM", browser)
        .env("SCREENSHOTS", home.join("screenshots"))
        .env("NO_PROXY", "127.0.0.1,localhost")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start node")?;
    let out = BufReader::new(child.stdout.take().context("node has no piped output")?);
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for line in out.lines() {
        let line = line?;
        let Line { journey, seconds, note, error } = serde_json::from_str(&line)
            .with_context(|| format!("the tests printed a line that is not a result: {line}"))?;
        let result = if error.is_some() { "FAILED" } else { "ok" };
        writeln!(stdout(), "{result:<6}  {journey:<58}  {seconds:>5.1} s  {}", note.unwrap_or_default())?;
        match error {
            Some(error) => failures.push(format!("{journey}:\n{error}")),
            None => tally += Tally::passed(1),
        }
    }
    let status = child.wait()?;
    for failure in &failures {
        eprintln!("\n{failure}");
    }
    tally.failed += failures.len();
    ensure!(status.success() || tally.failed > 0, "the tests ended with {status}");
    ensure!(tally != Tally::default(), "no journey has such a name");
    eprintln!("console: the screenshots are in {}", home.join("screenshots").display());
    Ok(tally)
}

/// Finds the browser, or installs Debian's.
fn browser() -> Result<PathBuf> {
    let find = || {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        let mut candidates =
            BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        candidates.find(|file| file.is_file())
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    debian::install("chromium").context("the tests of the console need a browser; install chromium")?;
    find().context("chromium was installed, but is not in the PATH")
}

/// The text of the record: the digest of all inputs, then a digest for each file, in the form of `sha256sum`.
fn record(console: &Path) -> Result<String> {
    let mut sources = Sha256::new();
    for file in &inputs(console)? {
        sources.update(format!("{}  {}\n", digest_of(file)?, relative(file, console)?));
    }
    let mut text = format!("{:x}  sources\n", sources.finalize());
    let dist = console.join("dist");
    for file in files(&dist, &[])?.iter().filter(|file| !file.ends_with(RECORD)) {
        writeln!(text, "{}  {}", digest_of(file)?, relative(file, &dist)?)?;
    }
    Ok(text)
}

/// Everything but what is built and installed.
fn inputs(console: &Path) -> Result<Vec<PathBuf>> {
    files(console, &[&console.join("dist"), &console.join("node_modules")])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What the page may weigh on the wire.
    const LARGEST: usize = 150 << 10;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let console = root.join("host/console");
        for (file, text) in [
            ("src/main.tsx", "// main"),
            ("index.html", "<p>"),
            ("dist/index.html", "<p>"),
            ("dist/assets/app.js", "1"),
        ] {
            write_if_changed(&console.join(file), text.as_bytes()).unwrap();
        }
        fs::write(console.join("dist").join(RECORD), record(&console).unwrap()).unwrap();
        (folder, root)
    }

    #[test]
    fn the_committed_console_fits_its_sources() {
        check(&crate::repository().unwrap()).unwrap();
    }

    #[test]
    fn check_names_what_differs() {
        for (file, named) in [
            ("src/new.ts", "(sources)"),
            ("package-lock.json", "(sources)"),
            ("dist/assets/app.js", "(assets/app.js)"),
        ] {
            let (_folder, root) = tree();
            check(&root).unwrap();
            write_if_changed(&root.join("host/console").join(file), b"changed").unwrap();
            let error = check(&root).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("cargo xtask console"), "{file}: {error}");
        }
    }

    #[test]
    fn installed_packages_are_not_inputs() {
        let (_folder, root) = tree();
        write_if_changed(&root.join("host/console/node_modules/x/index.js"), b"x").unwrap();
        check(&root).unwrap();
    }

    #[test]
    fn the_console_is_small_and_loads_nothing_else() {
        let dist = crate::repository().unwrap().join("host/console/dist");
        let mut size = 0;
        for file in BUILT {
            let bytes = fs::read(dist.join(file)).unwrap();
            size += packed(&bytes);
        }
        assert!(size <= LARGEST, "the console has {size} bytes compressed");
        let page = fs::read_to_string(dist.join("index.html")).unwrap();
        for forbidden in ["://", "<style", "style=", "onclick", "onload"] {
            assert!(!page.contains(forbidden), "index.html has {forbidden}");
        }
        let scripts = page.matches("<script").count();
        assert_eq!(
            (
                scripts,
                page.matches("<script type=\"module\" crossorigin src=\"./assets/app.js\"></script>").count()
            ),
            (1, 1)
        );
        assert!(
            !fs::read_to_string(dist.join("assets/app.css")).unwrap().contains("url("),
            "the style sheet loads something"
        );
    }

    #[test]
    fn text_of_users_is_never_markup() {
        let sources = crate::repository().unwrap().join("host/console/src");
        for file in files(&sources, &[]).unwrap() {
            let text = fs::read_to_string(&file).unwrap();
            for forbidden in [
                "dangerouslySetInnerHTML",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(forbidden), "{} has {forbidden}", file.display());
            }
        }
    }

    #[test]
    fn lock_files_name_no_registry() {
        let root = crate::repository().unwrap();
        for lock in ["host/console/package-lock.json", "tests/console/package-lock.json"] {
            let text = fs::read_to_string(root.join(lock)).unwrap();
            assert!(
                !text.contains("\"resolved\""),
                "{lock} says where packages were downloaded from; delete the fields `resolved`"
            );
            assert!(text.contains("\"integrity\""), "{lock} has no digests");
        }
    }

    /// The size with gzip, or an upper bound if there is no gzip.
    fn packed(bytes: &[u8]) -> usize {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let output = Command::new("gzip").args(["-9", "-c"]).arg(file.path()).output();
        output.ok().filter(|output| output.status.success()).map_or(bytes.len(), |output| output.stdout.len())
    }
}
