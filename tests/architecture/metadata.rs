//! The packages of the workspace and everything that they depend on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::sources::root;

/// `cargo metadata` of this workspace.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: HashSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency as a manifest declares it.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, or `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

// === impl Metadata ===

impl Metadata {
    pub(crate) fn load() -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "metadata",
                "--format-version",
                "1",
                "--locked",
                "--offline",
                "--filter-platform",
                &platform(),
            ])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the format of cargo metadata")
    }

    /// The packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The crates below `host`, by the name of their folder: those that the product consists of.
    pub(crate) fn host_crates(&self) -> BTreeMap<String, &Package> {
        let host = root().join("host");
        let folder = |package: &Package| {
            let folder = package.manifest_path.parent()?.strip_prefix(&host).ok()?;
            Some(folder.to_str()?.to_owned())
        };
        self.members().filter_map(|package| Some((folder(package)?, package))).collect()
    }

    /// The names of all packages that must be compiled for the tests of a package.
    pub(crate) fn compiled_for_tests(&self, package: &Package) -> BTreeSet<&str> {
        let nodes: HashMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let names: HashMap<&str, &str> =
            self.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let mut seen = HashSet::from([package.id.as_str()]);
        let mut left = vec![package.id.as_str()];
        while let Some(id) = left.pop() {
            for edge in nodes.get(id).into_iter().flat_map(|node| &node.deps) {
                let is_dev = |kind: &EdgeKind| kind.kind.as_deref() == Some("dev");
                // Dev-dependencies count for the package itself only.
                if (id == package.id || !edge.dep_kinds.iter().all(is_dev)) && seen.insert(&edge.pkg) {
                    left.push(&edge.pkg);
                }
            }
        }
        seen.into_iter().filter_map(|id| names.get(id).copied()).collect()
    }
}

impl Package {
    /// The normal dependencies, without those for tests and build scripts.
    pub(crate) fn normal_dependencies(&self) -> impl Iterator<Item = &str> {
        let is_normal = |dependency: &&Dependency| dependency.kind.is_none();
        self.dependencies.iter().filter(is_normal).map(|dependency| dependency.name.as_str())
    }
}

/// The target triple of this machine.
fn platform() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("the host's triple").to_owned()
}
