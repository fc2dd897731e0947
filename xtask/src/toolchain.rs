//! Finds or provides a compiler for `wasm32-wasip2`.
//!
//! The sources are tried in order; one that fails says why before the next is tried:
//!
//! 1. the target is installed with the active Rust;
//! 2. rustup adds it, unless `RUSTUP_AUTO_INSTALL=0` forbids that;
//! 3. Debian's packages are unpacked into a folder of ours. Nothing is installed: apt checks the signatures, `dpkg -x`
//!    unpacks, and only `apt-get update` needs root, which may fail if the package lists are new enough;
//! 4. an error says what to install.
//!
//! Debian has a compiler and the sources of `std`, but no compiled `std` for this target, so the third source compiles it with
//! cargo's `-Zbuild-std`, which a stable cargo accepts only with `RUSTC_BOOTSTRAP=1`. Debian has no component linker either:
//! `rust-lld` and `wasm-component-ld` come from the active Rust, which has them on every host.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{cargo, read};
use crate::debian::apt;

/// The target of guests; its linker emits components without an adapter or another tool.
pub(crate) const TARGET: &str = "wasm32-wasip2";

/// Marks a complete tree of Debian packages. Raise the number when [`unpack`] changes what it leaves behind.
const STAMP: &str = "unpacked-2";

/// The oldest compiler that compiles our code.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// A compiler that can build for [`TARGET`].
pub(crate) struct Toolchain {
    /// The output of `rustc -V`.
    pub(crate) version: String,
    /// The folder of the sources of `std`, whose path the compiler would write into a component.
    pub(crate) sysroot: PathBuf,
    env: Vec<(&'static str, OsString)>,
    args: &'static [&'static str],
}

// === impl Toolchain ===

impl Toolchain {
    /// Finds or provides a compiler; Debian's packages are unpacked into `tree`.
    pub(crate) fn find(tree: &Path) -> Result<Self> {
        let rungs: [(&str, &dyn Fn() -> Result<Self>); 3] = [
            ("installed target", &Self::installed),
            ("rustup", &Self::added),
            ("Debian packages", &|| Self::unpacked(tree)),
        ];
        for (name, rung) in rungs {
            let start = Instant::now();
            match rung() {
                Ok(toolchain) => {
                    let seconds = start.elapsed().as_secs_f64();
                    eprintln!("wasm toolchain: {name}: {} ({seconds:.1} s)", toolchain.version);
                    return Ok(toolchain);
                }
                Err(reason) => eprintln!("wasm toolchain: {name}: not available: {reason:#}"),
            }
        }
        bail!(
            "no compiler for {TARGET}; run `rustup target add {TARGET}`, or use a Debian with rustc-web and a Rust \
             that has wasm-component-ld"
        )
    }

    /// `cargo build --release` for [`TARGET`] with this compiler.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut command = cargo();
        command.args(["build", "--release", "--target", TARGET]).args(self.args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn installed() -> Result<Self> {
        let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?);
        ensure!(sysroot.join("lib/rustlib").join(TARGET).is_dir(), "{} has no {TARGET}", sysroot.display());
        Ok(Self { version: rustc(&["-V"])?, sysroot, env: Vec::new(), args: &[] })
    }

    fn added() -> Result<Self> {
        ensure!(
            env::var_os("RUSTUP_AUTO_INSTALL").is_none_or(|value| value != "0"),
            "RUSTUP_AUTO_INSTALL=0 forbids installing the target"
        );
        eprintln!("wasm toolchain: rustup target add {TARGET}");
        read(Command::new("rustup").args(["target", "add", TARGET]))?;
        Self::installed()
    }

    fn unpacked(tree: &Path) -> Result<Self> {
        let linkers = Path::new(&rustc(&["--print", "target-libdir"])?).with_file_name("bin");
        ensure!(
            linkers.join("wasm-component-ld").is_file(),
            "{} has no wasm-component-ld",
            linkers.display()
        );
        if !tree.join(STAMP).is_file() {
            unpack(tree)?;
        }

        // Without symbolic links, because the remapped prefix must be what the compiler would write.
        let sysroot = tree.join("usr").canonicalize().context("cannot find the unpacked packages")?;
        let rustc = sysroot.join("bin/rustc");
        let libraries = multiarch(&sysroot.join("lib"))?;
        let version = read(Command::new(&rustc).arg("-V").env("LD_LIBRARY_PATH", &libraries))?;
        ensure!(is_new_enough(&version), "{version} is older than {OLDEST}; delete {}", tree.display());
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([linkers].into_iter().chain(env::split_paths(&path)))?;
        Ok(Self {
            version,
            sysroot,
            env: vec![
                ("RUSTC", rustc.into()),
                ("LD_LIBRARY_PATH", libraries.into()),
                ("PATH", path),
                ("RUSTC_BOOTSTRAP", OsString::from("1")),
            ],
            args: &["-Zbuild-std=std,panic_abort"],
        })
    }
}

/// Queries the active Rust.
fn rustc(args: &[&str]) -> Result<String> {
    read(Command::new("rustc").args(args))
}

/// Whether the output of `rustc -V` names a version not older than [`OLDEST`].
fn is_new_enough(version: &str) -> bool {
    let numbers =
        |text: &str| -> Vec<u32> { text.split('.').map_while(|number| number.parse().ok()).collect() };
    version.split(' ').nth(1).is_some_and(|version| numbers(version) >= numbers(OLDEST))
}

/// Fills `tree`, all or nothing: the work happens in a folder beside it, which is renamed at the end.
fn unpack(tree: &Path) -> Result<()> {
    let partial = tree.with_extension("partial");
    for stale in [tree, &partial] {
        if stale.exists() {
            fs::remove_dir_all(stale).with_context(|| format!("cannot clear {}", stale.display()))?;
        }
    }
    let debs = partial.join("debs");
    fs::create_dir_all(&debs).with_context(|| format!("cannot create {}", debs.display()))?;

    // Old package lists name packages that are gone, or a compiler that is too old.
    eprintln!("wasm toolchain: apt-get update");
    if let Err(reason) = apt("apt-get", &["update"], &debs) {
        eprintln!("wasm toolchain: {reason:#}; continuing with the existing package lists");
    }
    eprintln!("wasm toolchain: downloading Debian packages (140 MB)");
    download(&debs)?;
    eprintln!("wasm toolchain: unpacking into {}", tree.display());
    for deb in fs::read_dir(&debs)? {
        read(Command::new("dpkg").arg("-x").arg(deb?.path()).arg(&partial))?;
    }
    fs::remove_dir_all(&debs)?;

    // The place where rustup's toolchains have the C library of the target too. There it needs no `-L` flag, which would make
    // cargo's crate hashes, and with them the bytes of a component, depend on the path of this tree.
    let lib = partial.join("usr/lib");
    let target = lib.join("rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&target)?;
    fs::rename(lib.join("wasm32-wasi"), target.join("self-contained"))
        .context("cannot find wasi-libc where Debian's package had it")?;

    fs::write(partial.join(STAMP), "")?;
    fs::rename(&partial, tree).with_context(|| format!("cannot move into {}", tree.display()))
}

/// Downloads the packages in the version that this Debian has.
fn download(debs: &Path) -> Result<()> {
    let std = dependency("libstd-rust-web-dev", "libstd-rust-web-", debs)?;
    let llvm = dependency(&std, "libllvm", debs)?;
    let packages = ["download", "rustc-web", "libstd-rust-web-dev", &std, "rust-web-src", &llvm, "wasi-libc"];
    apt("apt-get", &packages, debs)?;
    Ok(())
}

/// The dependency of `package` whose name begins with `prefix`; the full name contains a version.
fn dependency(package: &str, prefix: &str, folder: &Path) -> Result<String> {
    apt("apt-cache", &["depends", package], folder)?
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .with_context(|| format!("apt has no candidate for {package}"))
}

/// The folder of the compiler's own libraries, which Debian names after the machine, as in `x86_64-linux-gnu`.
fn multiarch(lib: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(lib).with_context(|| format!("cannot read {}", lib.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with("-linux-gnu") {
            return Ok(entry.path());
        }
    }
    bail!("{} has no libraries for this machine", lib.display())
}
