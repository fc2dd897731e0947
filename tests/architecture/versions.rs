//! A crate is compiled in one version, unless there is a reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::Metadata;

/// Crates in several versions, and why. deny.toml has the same ones and those of other platforms.
const SEVERAL: [(&str, &str); 11] = [
    ("base64", "tonic uses 0.22, everything else 0.23"),
    ("cpufeatures", "sha2 0.10 uses 0.2, rand's chacha20 uses 0.3"),
    ("embedded-io", "wasmtime's postcard supports two versions"),
    ("foldhash", "the hashbrown of prost-build's petgraph uses 0.1"),
    ("getrandom", "jsonschema and ahash use 0.3; rand, tempfile and uuid use 0.4"),
    ("hashbrown", "prost-build's petgraph uses 0.15, wasmtime's gimli 0.16, everything else 0.17"),
    ("io-lifetimes", "wasmtime's fs-set-times uses 2, cap-std uses 3"),
    ("rand", "the SDK of OpenTelemetry uses 0.9, everything else 0.10"),
    ("rand_core", "as rand"),
    ("syn", "the macros of wasmtime, strum, prost and tracing use 2, the others 3"),
    ("unicode-width", "protox's miette uses 0.1"),
];

#[test]
fn every_crate_is_compiled_in_one_version_but_the_named_ones() {
    let metadata = Metadata::load();
    let named = BTreeMap::from(SEVERAL);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // Only what some member compiles on this platform.
    let compiled: BTreeSet<&str> =
        metadata.members().flat_map(|package| metadata.compiled_for_tests(package)).collect();
    for package in metadata.packages.iter().filter(|package| compiled.contains(package.name.as_str())) {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let several: BTreeMap<&str, BTreeSet<&str>> =
        versions.into_iter().filter(|(_, versions)| versions.len() > 1).collect();
    let unnamed: Vec<_> = several.iter().filter(|(name, _)| !named.contains_key(*name)).collect();
    assert!(unnamed.is_empty(), "unify these, or name them with the reason: {unnamed:?}");
    if cfg!(target_os = "linux") {
        let stale: Vec<_> = named.keys().filter(|name| !several.contains_key(*name)).collect();
        assert!(stale.is_empty(), "one version is left of these; remove them from the list: {stale:?}");
    }
}
