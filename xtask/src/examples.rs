//! `cargo xtask examples`: what authors of executors do, from the sources to a turn.
//!
//! The example executors are built with the tools that their authors would use, and must pass their own tests. So must a
//! project of each language, as `talaria executor new` creates it. The components in Python and JavaScript have megabytes and
//! go to `target/examples`, where the end-to-end tests and the benchmark find them; `cargo xtask guests` builds those in Rust.
//!
//! The tools are installed on the first run, by name and pin, below `target/examples`. A component is built again only if its
//! inputs change.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::command::{cargo, read, run, target};
use crate::gate::Tally;
use crate::guests;
use crate::node::Node;
use crate::toolchain::{TARGET, Toolchain};
use crate::venv::Venv;

/// The names of the new projects.
const NEW: [(&str, &str); 3] = [("new-rust", "rust"), ("new-python", "python"), ("new-js", "js")];
/// The folder of the contract, in a project as in this repository.
const WIT: &str = "wit/0.1.0";

/// The folders and programs in use.
struct Workshop<'a> {
    root: &'a Path,
    home: PathBuf,
    /// The product's binary.
    talaria: PathBuf,
}

/// Installs the build tools.
pub(crate) fn prepare(root: &Path) -> Result<()> {
    let workshop = Workshop::open(root)?;
    Toolchain::find(&root.join("target/wasm-toolchain"))?;
    workshop.python_tools(&workshop.example("redact"))?;
    workshop.js_tools().map(drop)
}

/// Builds and tests all examples and new projects.
pub(crate) fn run_all(root: &Path) -> Result<Tally> {
    run(cargo().args(["build", "--workspace"]).current_dir(root))?;
    let workshop = Workshop::open(root)?;
    workshop.rust_example("race")?;
    workshop.python_example("redact")?;
    workshop.js_example("by-language")?;
    for (name, language) in NEW {
        workshop.new_project(name, language)?;
    }
    Ok(Tally::passed(3 + NEW.len()))
}

// === impl Workshop ===

impl<'a> Workshop<'a> {
    fn open(root: &'a Path) -> Result<Self> {
        let target = target(root)?;
        let home = target.join("examples");
        fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
        Ok(Self { root, home, talaria: target.join("debug/talaria") })
    }

    fn example(&self, name: &str) -> PathBuf {
        self.root.join("examples").join(name)
    }

    /// `cargo xtask guests` built it.
    fn rust_example(&self, name: &str) -> Result<()> {
        let built = self.root.join("guests/dist/test").join(format!("{name}.wasm"));
        let component = self.home.join(format!("{name}.wasm"));
        fs::copy(&built, &component).with_context(|| format!("cannot copy {}", built.display()))?;
        self.test(&component, &self.example(name), name)
    }

    fn python_example(&self, name: &str) -> Result<()> {
        let project = self.example(name);
        let component = self.home.join(format!("{name}.wasm"));
        self.once(&project, &component, || self.componentize_py(&project, &component))?;
        self.test(&component, &project, name)
    }

    fn js_example(&self, name: &str) -> Result<()> {
        let project = self.example(name);
        let component = self.home.join(format!("{name}.wasm"));
        self.once(&project, &component, || {
            // Packages are looked up beside the sources, so the sources are copied to a folder that may have packages.
            let copy = self.home.join(name);
            clear(&copy)?;
            for file in sources(&project)? {
                fs::copy(&file, copy.join(file.strip_prefix(&project)?))?;
            }
            fs::create_dir_all(copy.join("wit"))?;
            symlink(self.root.join(WIT), copy.join(WIT))?;
            self.componentize_js(&copy, name)?;
            fs::copy(copy.join(format!("{name}.wasm")), &component)?;
            Ok(())
        })?;
        self.test(&component, &project, name)
    }

    /// Builds a project as `talaria executor new` creates it, from its own files.
    fn new_project(&self, name: &str, language: &str) -> Result<()> {
        let fresh = self.home.join("fresh");
        clear(&fresh)?;
        run(Command::new(&self.talaria)
            .args(["executor", "new", name, "--lang", language])
            .current_dir(&fresh))?;
        let project = fresh.join(name);
        let component = self.home.join(format!("{name}.wasm"));
        self.once(&project, &component, || match language {
            "rust" => self.cargo(&project, name, &component),
            "python" => self.componentize_py(&project, &component),
            _ => {
                self.componentize_js(&project, name)?;
                fs::copy(project.join(format!("{name}.wasm")), &component)?;
                Ok(())
            }
        })?;
        self.test(&component, &project, name)
    }

    fn cargo(&self, project: &Path, name: &str, component: &Path) -> Result<()> {
        let toolchain = Toolchain::find(&self.root.join("target/wasm-toolchain"))?;
        // With the target folder and flags of the guests, so that `std` is not compiled again.
        let folder = self.root.join("guests/target");
        run(toolchain
            .cargo_build()
            .arg("--target-dir")
            .arg(&folder)
            .env("CARGO_ENCODED_RUSTFLAGS", guests::flags(self.root, &toolchain)?)
            .current_dir(project))?;
        let built = folder.join(TARGET).join("release").join(format!("{}.wasm", name.replace('-', "_")));
        fs::copy(&built, component).with_context(|| format!("cargo did not build {}", built.display()))?;
        Ok(())
    }

    fn componentize_py(&self, project: &Path, component: &Path) -> Result<()> {
        let venv = self.python_tools(project)?;
        // A project contains the contract; an example uses the one of this repository.
        let wit = [project.join(WIT), self.root.join(WIT)].into_iter().find(|wit| wit.is_dir());
        let mut command = Command::new(venv.bin().join("componentize-py"));
        command.arg("-d").arg(wit.context("cannot find the WIT contract")?).args([
            "-w",
            "executor",
            "componentize",
            "-p",
        ]);
        read(command.arg(project).args(["app", "-o"]).arg(component).env_remove("VIRTUAL_ENV")).map(drop)
    }

    fn python_tools(&self, project: &Path) -> Result<Venv> {
        let pins = fs::read_to_string(project.join("requirements.txt"))?;
        let pin = pins.trim();
        Venv::find(&self.home, &pin.replace("==", " "), &[OsStr::new(pin)], "")
    }

    fn js_tools(&self) -> Result<(Node, PathBuf)> {
        let node = Node::find(&self.home)?;
        // The new project has the same pins as the example.
        let packages = node.install(&self.home, &self.example("by-language"))?;
        Ok((node, packages))
    }

    fn componentize_js(&self, project: &Path, name: &str) -> Result<()> {
        let (node, packages) = self.js_tools()?;
        symlink(packages.join("node_modules"), project.join("node_modules"))?;
        read(node.command("node").arg("build.mjs").current_dir(project))
            .with_context(|| format!("cannot build {name}"))
            .map(drop)
    }

    /// Builds a component, unless one of the same inputs is there.
    fn once(&self, project: &Path, component: &Path, build: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut digest = Sha256::new();
        for folder in [project, &self.root.join(WIT)] {
            for file in sources(folder)? {
                digest.update(file.strip_prefix(folder)?.as_os_str().as_encoded_bytes());
                digest.update(fs::read(&file)?);
            }
        }
        let sources = format!("{:x}", digest.finalize());
        let stamp = component.with_extension("sources");
        if component.is_file() && fs::read_to_string(&stamp).is_ok_and(|made_of| made_of == sources) {
            return Ok(());
        }
        let start = Instant::now();
        build()?;
        let bytes = fs::metadata(component).context("the build produced no component")?.len();
        fs::write(stamp, sources)?;
        let name = component.file_stem().unwrap_or_default().to_string_lossy();
        eprintln!("examples: built {name}, {} KiB, in {:.1} s", bytes >> 10, start.elapsed().as_secs_f64());
        Ok(())
    }

    /// The project's own test.
    fn test(&self, component: &Path, project: &Path, name: &str) -> Result<()> {
        let mut command = Command::new(&self.talaria);
        command.args(["executor", "test"]).arg(component);
        command.arg("--config").arg(project.join(format!("{name}.toml")));
        command.arg("--cassette").arg(project.join("cassette.toml"));
        // Shares the compiled components of the end-to-end tests: each takes seconds to compile.
        command.env("XDG_CACHE_HOME", self.talaria.with_file_name("e2e-cache"));
        let tested = command.output().context("cannot start talaria")?;
        let said = String::from_utf8_lossy(&tested.stdout);
        ensure!(
            tested.status.success(),
            "{name} fails its test:\n{said}{}",
            String::from_utf8_lossy(&tested.stderr)
        );
        eprintln!("examples: {name} passes its test");
        Ok(())
    }
}

/// The input files of a component: without the contract, prose and tests, and without what its author installed or built
/// there.
fn sources(project: &Path) -> Result<Vec<PathBuf>> {
    let others =
        ["wit", "node_modules", ".venv", "wit_world", "target", "__pycache__"].map(|name| project.join(name));
    let mut files = guests::files(project, &others.each_ref().map(PathBuf::as_path))?;
    let is_other = |file: &PathBuf| match file.extension().and_then(OsStr::to_str) {
        Some("wasm" | "md") => true,
        Some("toml") => !file.ends_with("Cargo.toml"),
        _ => false,
    };
    files.retain(|file| !is_other(file));
    Ok(files)
}

/// Creates an empty folder.
fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
