//! The files in `examples/workspace`: as far as they can be tried without a container engine.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bridge::{run, stderr, stdout, talaria};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workspace").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(example(name)).unwrap()
}

fn yaml(name: &str) -> Vec<Value> {
    read(name)
        .split("\n---\n")
        .map(|text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect()
}

/// Every command in the files that starts talaria, without the program's name.
fn commands() -> Vec<Vec<String>> {
    let containerfile = read("Containerfile");
    let entry = containerfile.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    let entry: Vec<String> = serde_json::from_str(entry).unwrap();
    let deployment =
        yaml("kubernetes.yaml").into_iter().find(|document| document["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["talaria"]));
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    assert_eq!(entry[0], "talaria");
    vec![entry[1..].to_vec(), args]
}

#[test]
fn the_configuration_is_one_and_the_commands_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    for words in commands() {
        assert_eq!(words[0], "serve");
        let help = run(talaria(folder.path()).args(&words).arg("--help"));
        assert!(help.status.success(), "{words:?}: {}", stderr(&help));
    }
    // Nothing listens, so the executor is not ready; but everything is understood.
    let config = read("talaria.toml").replace("/configs", &folder.path().to_string_lossy());
    std::fs::write(folder.path().join("talaria.toml"), config).unwrap();
    let check = run(talaria(folder.path())
        .args(["check", "--output", "json"])
        .env("HERMES_API_BASE", "http://127.0.0.1:1/v1"));
    assert_eq!(check.status.code(), Some(1), "{}", stderr(&check));
    let report: Value = serde_json::from_str(&stdout(&check)).unwrap();
    assert_eq!(report["warnings"], serde_json::json!([]));
}

#[test]
fn the_files_agree_on_ports_volumes_and_time() {
    let compose = &yaml("compose.yaml")[0];
    let service = &compose["services"]["workspace"];
    assert_eq!(service["ports"][0], "8000:8000");
    assert_eq!(service["volumes"][0], "configs:/configs");
    assert!(compose["volumes"].as_object().unwrap().contains_key("configs"));
    assert_eq!(service["build"]["dockerfile"], "examples/workspace/Containerfile");
    let documents = yaml("kubernetes.yaml");
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["PersistentVolumeClaim", "Service", "Deployment"]);
    let pod = &documents[2]["spec"]["template"]["spec"];
    assert_eq!(pod["terminationGracePeriodSeconds"], 40);
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/configs");
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], documents[0]["metadata"]["name"]);
    assert_eq!(documents[1]["spec"]["selector"], documents[2]["spec"]["template"]["metadata"]["labels"]);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let command = &container[probe]["exec"]["command"];
        // What the probes run is Python that compiles.
        let compiled = std::process::Command::new("python3")
            .args(["-c", "import sys; compile(sys.argv[1], 'probe', 'exec')"])
            .arg(command[2].as_str().unwrap())
            .status()
            .unwrap();
        assert!(compiled.success(), "{probe}: {command}");
    }
    assert!(container["resources"]["limits"]["memory"].is_string());
    let containerfile = read("Containerfile");
    for line in ["USER agent", "VOLUME /configs", "EXPOSE 8000"] {
        assert!(containerfile.lines().any(|said| said == line), "{line}");
    }
}
