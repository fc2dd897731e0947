//! Which crate may depend on which.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::metadata::Metadata;
use crate::sources::matches;

/// The crates of the core: they know no product, and compile without wasmtime but for `engine`. `redact` is not among them,
/// since the prefixes of keys are those of providers.
pub(crate) const CORE: [&str; 15] = [
    "a2a",
    "backoff",
    "budget",
    "config",
    "egress",
    "engine",
    "executors",
    "listen",
    "mailbox",
    "mcp",
    "observe",
    "oci",
    "store",
    "telemetry",
    "turns",
];

/// The crates of ours that each crate uses, and no other. The binary may use all of them.
const ARROWS: [(&str, &[&str]); 20] = [
    // Lowest: the domain, redaction, the two ends of the network, logs and metrics.
    ("backoff", &[]),
    ("budget", &[]),
    ("redact", &[]),
    ("egress", &["redact"]),
    ("listen", &["budget"]),
    ("observe", &["redact"]),
    ("turns", &["backoff", "budget"]),
    // The capabilities, independent of each other.
    ("a2a", &["budget", "listen", "turns"]),
    ("config", &["redact"]),
    ("engine", &["budget", "egress", "redact", "turns"]),
    ("mailbox", &["budget", "listen", "redact", "turns"]),
    ("mcp", &["budget", "egress", "listen", "redact", "turns"]),
    ("oci", &["backoff", "egress", "redact"]),
    ("store", &["turns"]),
    ("telemetry", &["backoff", "egress", "redact", "turns"]),
    // What is built on them.
    ("client", &["backoff", "config", "egress"]),
    ("executors", &["backoff", "config", "egress", "engine", "oci", "redact", "turns"]),
    ("hermes", &["backoff", "config", "egress", "executors", "listen", "mailbox", "redact", "turns"]),
    ("workbench", &["config", "egress", "engine", "executors", "listen", "observe", "store", "turns"]),
    ("workspace", &["backoff", "config", "egress", "mcp", "redact", "turns"]),
];

/// Crates from elsewhere that only one of ours may use, by the beginning of their names.
const OWNED: [(&str, &[&str]); 3] = [
    ("engine", &["wasmtime", "cranelift", "wasmer", "wasmi"]),
    (
        "store",
        &[
            "rusqlite",
            "libsqlite3",
            "sqlx",
            "diesel",
            "tokio-postgres",
            "postgres",
            "redb",
            "sled",
            "rocksdb",
        ],
    ),
    (
        "egress",
        &[
            "hyper-rustls",
            "hyper-tls",
            "reqwest",
            "ureq",
            "isahc",
            "curl",
            "surf",
            "awc",
            "rustls-native-certs",
        ],
    ),
];

#[test]
fn crates_depend_only_in_the_direction_of_the_arrows() {
    let metadata = Metadata::load();
    let arrows = BTreeMap::from(ARROWS);
    let mut wrong = Vec::new();
    for (folder, package) in metadata.host_crates() {
        if folder == "talaria" {
            continue;
        }
        let Some(allowed) = arrows.get(folder.as_str()) else {
            wrong.push(format!(
                "host/{folder} has no entry in ARROWS; add one, and the crate to ARCHITECTURE.md"
            ));
            continue;
        };
        let used: Vec<&str> =
            package.normal_dependencies().filter_map(|name| name.strip_prefix("talaria-")).collect();
        let forbidden = used.iter().filter(|name| !allowed.contains(name));
        wrong.extend(forbidden.map(|name| format!("host/{folder} must not depend on host/{name}")));
        let unused = allowed.iter().filter(|name| !used.contains(name));
        wrong
            .extend(unused.map(|name| format!("host/{folder} no longer uses host/{name}; delete the arrow")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_binary_depends_on_the_binary_and_no_host_crate_on_a_test_crate() {
    let metadata = Metadata::load();
    let host: BTreeSet<String> = metadata.host_crates().into_keys().collect();
    for (folder, package) in metadata.host_crates() {
        for name in package.normal_dependencies() {
            let ours = name.strip_prefix("talaria-");
            assert!(
                ours.is_none_or(|name| host.contains(name)),
                "host/{folder} depends on the test crate {name}"
            );
            assert_ne!(name, "talaria", "host/{folder} depends on the binary");
        }
    }
}

#[test]
fn only_engine_has_wasmtime_only_store_a_database_only_egress_an_http_client() {
    let metadata = Metadata::load();
    let mut wrong = Vec::new();
    for package in metadata.members() {
        for (owner, names) in OWNED {
            let owner = format!("talaria-{owner}");
            for dependency in package.normal_dependencies() {
                if package.name != owner && names.iter().any(|name| dependency.starts_with(name)) {
                    wrong.push(format!("{} depends on {dependency}; only {owner} may", package.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// hyper has client and server in one crate, so its client is found by its name in the sources.
#[test]
fn only_egress_names_the_client_of_hyper() {
    let client = Regex::new(r"\bhyper(_util)?::client\b").unwrap();
    let is_other =
        |path: &str| path.starts_with("host/") && path.ends_with(".rs") && !path.starts_with("host/egress/");
    let found = matches(&client, |path| is_other(path) && path.contains("/src/"));
    assert!(found.is_empty(), "call through talaria-egress instead:\n{}", found.join("\n"));
}

#[test]
fn tests_of_the_core_compile_no_wasmtime() {
    let metadata = Metadata::load();
    let crates = metadata.host_crates();
    for folder in
        CORE.iter().filter(|folder| !["engine", "executors"].contains(folder)).chain(&["workspace", "client"])
    {
        let Some(package) = crates.get(*folder) else { continue };
        let compiled = metadata.compiled_for_tests(package);
        let heavy =
            compiled.iter().find(|name| name.starts_with("wasmtime") || name.starts_with("cranelift"));
        assert_eq!(heavy, None, "the tests of host/{folder} compile it");
    }
}
