//! The GitHub workflows can be parsed and run the gate.

use serde_json::Value;

use crate::sources::sources;

#[test]
fn the_workflow_is_yaml_and_runs_the_gate_and_cargo_deny() {
    let mut text = String::new();
    for source in sources().iter().filter(|source| source.path.starts_with(".github/workflows/")) {
        let workflow: Value =
            serde_saphyr::from_str(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let jobs = workflow["jobs"].as_object().unwrap_or_else(|| panic!("{} has no jobs", source.path));
        for (name, job) in jobs {
            assert!(job["timeout-minutes"].is_u64(), "job {name} has no time limit");
            text.push_str(&job["steps"].to_string());
        }
    }
    assert!(text.contains("cargo xtask test"), "no workflow runs the gate");
    assert!(text.contains("cargo-deny-action"), "no workflow checks for advisories");
}
