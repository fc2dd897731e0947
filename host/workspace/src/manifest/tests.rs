//! What is read from `config.yaml`, and what is reported about it.

use super::*;

fn read(yaml: &str) -> Result<(Manifest, Vec<String>), Trouble> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), yaml).unwrap();
    std::fs::write(folder.path().join("first.md"), " begin \n").unwrap();
    let (manifest, troubles) = Manifest::read(folder.path())?;
    Ok((manifest, troubles.iter().map(ToString::to_string).collect()))
}

#[test]
fn reads_the_platforms_keys() {
    let (manifest, troubles) = read(
        "name: Researcher\nversion: 1.5\nruntime: hermes\nmodel: nousresearch/hermes-4-70b\n\
         skills: [papers, search]\nprompt_files: [system.md, soul.md]\ninitial_prompt_file: first.md\n\
         tools:\n- delegate\n- {type: function, function: {name: look}}\n\
         a2a: {port: 8100, streaming: false}\nobservability: {heartbeat_interval_seconds: 1}\nsecurity_scan: warn\n",
    )
    .unwrap();
    assert_eq!(troubles, [""; 0]);
    let defaults = Manifest::default();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!((manifest.name, manifest.version), (text("Researcher"), text("1.5")));
    assert_eq!((manifest.model, manifest.runtime), (text("nousresearch/hermes-4-70b"), text("hermes")));
    assert_eq!(manifest.skills, ["papers", "search"]);
    assert_eq!(manifest.prompt_files, ["system.md", "soul.md"]);
    assert_eq!(manifest.initial_prompt, text("begin"));
    assert_eq!(manifest.tools.len(), 1);
    assert_eq!((manifest.port, manifest.streaming, manifest.push_notifications), (8100, false, true));
    assert_eq!(manifest.heartbeat, Duration::from_secs(5), "the shortest allowed");
    assert_eq!(manifest.idle_interval, defaults.idle_interval);
    assert_eq!(manifest.raw["security_scan"], "warn", "keys without effect are kept");
}

#[test]
fn wrong_values_are_reported_and_left_out_and_the_rest_is_used() {
    let (manifest, troubles) = read(
        "name: [x]\nskils: [a]\nskills: papers\nprompt_files: [a.md, 3]\na2a: {port: 70000}\n\
         runtime_config: {model: m, timeout: 5, history: none}\ninitial_prompt_file: ../secret\nidle_interval_seconds: soon\n",
    )
    .unwrap();
    assert_eq!(manifest.prompt_files, ["a.md"]);
    assert_eq!((manifest.port, manifest.model.as_deref()), (8000, Some("m")));
    assert_eq!(Value::Object(manifest.settings), serde_json::json!({ "history": "none" }));
    for part in [
        "`skils` is not a known key",
        "`name` is not a text",
        "`skills` is not a list",
        "`a2a.port` is not a number",
        "../secret",
        "idle_interval",
    ] {
        assert!(
            troubles.iter().any(|said| said.replace(": is", " is").contains(part)),
            "{part}: {troubles:?}"
        );
    }
    assert_eq!(troubles.len(), 7, "{troubles:?}");
}

#[test]
fn a_second_model_is_reported_because_it_has_no_effect() {
    let (manifest, troubles) = read("model: m\nruntime_config: {model: n}\n").unwrap();
    assert_eq!(manifest.model.as_deref(), Some("m"));
    assert!(troubles.iter().any(|said| said.contains("`runtime_config.model`")), "{troubles:?}");
    assert_eq!(read("model: m\nruntime_config: {model: m}\n").unwrap().1.len(), 0);
}

#[test]
fn required_variables_are_those_of_all_models_and_of_the_chosen_one() {
    let yaml = "required_env: [A]\nruntime_config: {required_env: [B, A, 7]}\nmodels:\n- {id: m, required_env: [C]}\n- {id: n, required_env: [D]}\n- text\n";
    let (manifest, _) = read(yaml).unwrap();
    assert_eq!(manifest.required_env(Some("m")), ["A", "B", "C"]);
    assert_eq!(manifest.required_env(None), ["A", "B"]);
    assert_eq!(read("required_env: A").unwrap().0.required_env(None), [""; 0]);
}

#[test]
fn a_change_that_needs_a_restart_is_named() {
    let (before, _) = read("a2a: {port: 8000}\nruntime_config: {history: none}\n").unwrap();
    let keys = |yaml: &str| read(yaml).unwrap().0.restart_keys(&before).collect::<Vec<_>>();
    assert_eq!(keys("name: other\nruntime_config: {history: none, timeout: 5}\n"), [""; 0]);
    assert_eq!(keys("a2a: {port: 8001}\n"), ["a2a.port", "runtime_config"]);
}

#[test]
fn an_invalid_file_is_an_error_and_a_missing_file_is_not() {
    for bad in ["a: [", "- list", "\0"] {
        assert!(read(bad).unwrap_err().to_string().contains(FILE), "{bad:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (manifest, troubles) = Manifest::read(folder.path()).unwrap();
    assert_eq!((manifest, troubles.len()), (Manifest::default(), 1));
    assert_eq!(read("").unwrap().0, Manifest::default());
}
