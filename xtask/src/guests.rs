//! `cargo xtask guests`: the components that the host embeds, built and checked.
//!
//! Components are committed in `dist/`, so that `cargo run` needs no wasm toolchain. Two rules keep them true:
//!
//! - **The bytes are the same from any folder.** The guests have their own lockfile and release profile, one cargo target
//!   folder at a fixed place, and a neutral name for every path prefix that the compiler would write into a component.
//!   Another compiler gives other bytes, so the one that was used is recorded.
//! - **A stale `dist/` is noticed.** `dist/SOURCES` has a digest of all inputs and one of each component. The check compares
//!   digests and never builds, so it takes milliseconds and needs no toolchain.
//!
//! Cargo says which packages are components: every member with a `cdylib`. A member with
//! `[package.metadata.talaria] test-only = true` is not for the product and goes to `dist/test/`. The examples in Rust are
//! such members, with a manifest in the workspace and their sources where authors look for them: cargo hashes the absolute
//! path of a package outside the workspace's folder, and their bytes would depend on where they are built.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::command::{cargo, read, run};
use crate::gate::{Tally, count};
use crate::toolchain::{TARGET, Toolchain};

/// The inputs in the guests' folder that can change a component, together with all of `wit/`. Prose cannot.
const INPUTS: [&str; 5] = ["rs", "toml", "lock", "json", "wit"];

/// The stack of a component. The linker's own choice is 1 MiB, which the host searches for touched pages after each turn. The
/// deepest thing on it is a JSON text of 128 levels.
const STACK: &str = "-zstack-size=262144";

/// One component to build.
struct Component {
    package: String,
    /// The file that cargo writes.
    artifact: String,
    /// Its place below `dist/`.
    file: String,
}

/// Builds every component of the workspace `guests` and writes its `dist/`.
pub(crate) fn build(guests: &Path, toolchain: &Toolchain) -> Result<()> {
    let components = components(guests)?;
    let target = guests.join("target");
    eprintln!("guests: building {} for {TARGET}", components.len());
    let start = Instant::now();
    run(toolchain
        .cargo_build()
        .arg("--locked")
        .args(components.iter().flat_map(|component| ["--package", &component.package]))
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root(guests)?, toolchain)?)
        .current_dir(guests))?;
    eprintln!("guests: built in {:.1} s", start.elapsed().as_secs_f64());

    let dist = guests.join("dist");
    let current: BTreeSet<PathBuf> = components.iter().map(|component| dist.join(&component.file)).collect();
    for stale in
        files(&dist, &[])?.into_iter().filter(|file| has_extension(file, "wasm") && !current.contains(file))
    {
        fs::remove_file(&stale).with_context(|| format!("cannot remove {}", stale.display()))?;
    }
    for component in &components {
        let built = target.join(TARGET).join("release").join(&component.artifact);
        let bytes = fs::read(&built).with_context(|| format!("cargo did not build {}", built.display()))?;
        write_if_changed(&dist.join(&component.file), &bytes)?;
        eprintln!("guests: {} {} bytes", component.file, bytes.len());
    }
    write_if_changed(&dist.join("SOURCES"), record(guests, &toolchain.version)?.as_bytes())
}

/// Fails if `dist/` was not built from the present sources.
pub(crate) fn check(guests: &Path) -> Result<()> {
    const FIX: &str = "run `cargo xtask guests` and commit guests/dist";
    let path = guests.join("dist/SOURCES");
    let recorded =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}; {FIX}", path.display()))?;
    let compiler = recorded.lines().find(|line| line.starts_with("rustc ")).unwrap_or_default();
    let actual = record(guests, compiler)?;

    ensure_same("guests/dist", &recorded, &actual, FIX)
}

/// Fails if the record of the sources that a folder was built from differs from that of the present sources.
pub(crate) fn ensure_same(dist: &str, recorded: &str, actual: &str, fix: &str) -> Result<()> {
    let recorded: BTreeSet<&str> = recorded.lines().collect();
    let actual: BTreeSet<&str> = actual.lines().collect();
    let differing: BTreeSet<&str> =
        recorded.symmetric_difference(&actual).filter_map(|line| line.split_whitespace().last()).collect();
    ensure!(differing.is_empty(), "{dist} is out of date ({}); {fix}", Vec::from_iter(differing).join(", "));
    Ok(())
}

/// Runs the unit tests of the executors, natively: logic that needs no host. Components that are only for the host's tests have
/// none, and some of them compile only for WebAssembly.
pub(crate) fn test(guests: &Path) -> Result<Tally> {
    let components = components(guests)?;
    let excluded = components.iter().filter(|component| component.file.starts_with("test/"));
    count(
        cargo()
            .args(["test", "--quiet", "--locked", "--workspace", "--lib"])
            .args(excluded.flat_map(|component| ["--exclude", &component.package]))
            .arg("--target-dir")
            .arg(guests.join("target"))
            .current_dir(guests),
    )
}

/// Builds every component again and fails if the bytes differ from the committed ones. With another compiler than the recorded
/// one there is nothing to compare.
pub(crate) fn reproduce(guests: &Path, toolchain: &Toolchain) -> Result<Tally> {
    check(guests)?;
    let path = guests.join("dist/SOURCES");
    let committed = fs::read_to_string(&path)?;
    if !committed.lines().any(|line| line == toolchain.version) {
        eprintln!("guests: the committed components were not built with {}; not compared", toolchain.version);
        return Ok(Tally::default());
    }
    build(guests, toolchain)?;
    let rebuilt = fs::read_to_string(&path)?;
    let differing: Vec<&str> =
        rebuilt.lines().filter(|line| !committed.lines().any(|known| known == *line)).collect();
    ensure!(differing.is_empty(), "these components differ when rebuilt:\n{}", differing.join("\n"));
    Ok(Tally::passed(components(guests)?.len()))
}

/// The text of `dist/SOURCES`: the digest of all inputs, the compiler, then a digest for each component, in the form
/// of `sha256sum`.
fn record(guests: &Path, compiler: &str) -> Result<String> {
    let root = root(guests)?;
    let dist = guests.join("dist");
    let mut inputs = files(guests, &[&guests.join("target"), &dist])?;
    inputs.retain(|file| INPUTS.iter().any(|input| has_extension(file, input)));
    // Only the Rust sources of the examples; their manifests are for authors.
    let examples = files(&root.join("examples"), &[])?.into_iter();
    inputs.extend(examples.filter(|file| {
        has_extension(file, "rs") && file.components().any(|folder| folder.as_os_str() == "src")
    }));
    inputs.extend(files(&root.join("wit"), &[])?);
    let mut sources = Sha256::new();
    for file in &inputs {
        sources.update(format!("{}  {}\n", digest_of(file)?, relative(file, root)?));
    }

    let mut text = format!("{:x}  sources\n{compiler}\n", sources.finalize());
    for file in files(&dist, &[])?.iter().filter(|file| has_extension(file, "wasm")) {
        writeln!(text, "{}  {}", digest_of(file)?, relative(file, &dist)?)?;
    }
    Ok(text)
}

/// The members of the workspace that yield a component.
fn components(guests: &Path) -> Result<Vec<Component>> {
    let metadata = read(
        cargo()
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(guests.join("Cargo.toml")),
    )?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("the output of cargo metadata is not JSON")?;
    let mut components = Vec::new();
    for package in array(&metadata, "packages") {
        let name = package
            .get("name")
            .and_then(Value::as_str)
            .context("cargo metadata lists a package without a name")?;
        let is_cdylib =
            |target: &&Value| array(target, "crate_types").iter().any(|kind| kind.as_str() == Some("cdylib"));
        let Some(library) = array(package, "targets").iter().find(is_cdylib) else { continue };
        let library = library
            .get("name")
            .and_then(Value::as_str)
            .context("cargo metadata lists a target without a name")?;
        let test_only = package.pointer("/metadata/talaria/test-only").and_then(Value::as_bool) == Some(true);
        components.push(Component {
            package: name.to_owned(),
            artifact: format!("{}.wasm", library.replace('-', "_")),
            file: if test_only { format!("test/{name}.wasm") } else { format!("{name}.wasm") },
        });
    }
    ensure!(!components.is_empty(), "{} has no member with a cdylib", guests.display());
    Ok(components)
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The compiler flags of all guests.
pub(crate) fn flags(source: &Path, toolchain: &Toolchain) -> Result<OsString> {
    let mut flags = remapped(source, &toolchain.sysroot)?;
    flags.push("\u{1f}-Clink-arg=");
    flags.push(STACK);
    Ok(flags)
}

/// Compiler flags that give the three folders of this machine neutral names. The order matters: the last prefix that fits
/// wins, and the sysroot may be inside the source tree.
fn remapped(source: &Path, sysroot: &Path) -> Result<OsString> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let mut flags = OsString::new();
    for (path, name) in [(source, "/talaria"), (&cargo_home, "/cargo"), (sysroot, "/rust")] {
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(path);
        flags.push("=");
        flags.push(name);
    }
    Ok(flags)
}

/// The folder that holds both the guests and the contract.
fn root(guests: &Path) -> Result<&Path> {
    guests.parent().with_context(|| format!("{} has no parent", guests.display()))
}

/// All files below a folder except those in `except`, sorted; empty if the folder does not exist.
pub(crate) fn files(folder: &Path, except: &[&Path]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() || except.contains(&folder.as_path()) {
            continue;
        }
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    Ok(found)
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|actual| actual == extension)
}

pub(crate) fn relative(file: &Path, base: &Path) -> Result<String> {
    Ok(file.strip_prefix(base)?.to_string_lossy().replace(MAIN_SEPARATOR, "/"))
}

pub(crate) fn digest_of(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(format!("{:x}", Sha256::digest(bytes)))
}

/// Writes a file unless its content is the same, so that the host that embeds it is not rebuilt for nothing.
pub(crate) fn write_if_changed(file: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with one source, one component and a fitting `SOURCES`.
    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let guests = folder.path().join("guests");
        for (file, text) in [
            ("wit/0.1.0/world.wit", "package talaria:executor;"),
            ("guests/echo/src/lib.rs", "// echo"),
            ("guests/dist/echo.wasm", "echo"),
        ] {
            write_if_changed(&folder.path().join(file), text.as_bytes()).unwrap();
        }
        fs::write(guests.join("dist/SOURCES"), record(&guests, "rustc 1.96.0").unwrap()).unwrap();
        (folder, guests)
    }

    #[test]
    fn committed_components_fit_their_sources() {
        let guests = crate::repository().unwrap().join("guests");
        check(&guests).unwrap();
    }

    #[test]
    fn check_names_what_differs() {
        for (file, named) in [
            ("guests/echo/src/lib.rs", "(sources)"),
            ("guests/Cargo.lock", "(sources)"),
            ("wit/0.1.0/README", "(sources)"),
            ("guests/dist/echo.wasm", "(echo.wasm)"),
            ("guests/dist/test/new.wasm", "(test/new.wasm)"),
        ] {
            let (folder, guests) = workspace();
            check(&guests).unwrap();
            write_if_changed(&folder.path().join(file), b"changed").unwrap();
            let error = check(&guests).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("cargo xtask guests"), "{file}: {error}");
        }
    }

    #[test]
    fn prose_and_build_output_are_not_inputs() {
        let (_folder, guests) = workspace();
        for file in ["README.md", "target/out.rs", "dist/notes.toml"] {
            write_if_changed(&guests.join(file), b"new").unwrap();
        }
        check(&guests).unwrap();
    }

    #[test]
    fn check_without_dist_says_what_to_run() {
        let folder = tempfile::tempdir().unwrap();
        let error = check(&folder.path().join("guests")).unwrap_err().to_string();
        assert!(error.contains("cargo xtask guests"), "{error}");
    }

    #[test]
    fn sysroot_inside_the_source_tree_has_its_own_name() {
        let flags = remapped(Path::new("/a"), Path::new("/a/target/tree/usr")).unwrap();
        let flags = flags.to_string_lossy();
        let last = flags.split('\u{1f}').next_back().unwrap();
        assert_eq!(last, "--remap-path-prefix=/a/target/tree/usr=/rust", "the last match wins");
    }
}
