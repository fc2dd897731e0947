//! `[tools]`: the tools of a workspace's agent.

use std::path::Path;

use super::Given;

fn workspace(file: &str) -> Given {
    Given::file(file).variable("WORKSPACE_ID", "w")
}

#[test]
fn tools_are_served_in_a_workspace_unless_they_are_off() {
    let config = workspace("").load();
    let tools = config.tools.expect("tools");
    assert_eq!((tools.listen.to_string().as_str(), tools.chosen), ("127.0.0.1:9100", false));
    assert_eq!(tools.settings.files, [Path::new("/workspace")]);
    assert!(!tools.settings.broadcast);
    let tools =
        workspace("[tools]\nlisten = \"[::1]:9\"\nfiles = [\"/a\", \"b\"]\nbroadcast = true").load().tools;
    let tools = tools.expect("tools");
    assert_eq!((tools.listen.to_string().as_str(), tools.chosen), ("[::1]:9", true));
    assert!(tools.settings.files[1].is_absolute() || tools.settings.files[1].ends_with("b"));
    assert!(workspace("[tools]\nlisten = \"off\"").load().tools.is_none());
    assert!(workspace("").variable("MOLECULE_SMOKE_MODE", "1").load().tools.is_none());
    let elsewhere = Given::file("[tools]\nbroadcast = true").load();
    assert!(elsewhere.tools.is_none());
    assert_eq!(elsewhere.warnings, ["`[tools]` has no effect: WORKSPACE_ID is not set"]);
    assert!(Given::file("[tools]\nlisten = \"off\"").load().warnings.is_empty());
}

#[test]
fn tools_listen_on_this_machine_only() {
    let error = workspace("[tools]\nlisten = \"0.0.0.0:9100\"").error();
    assert!(error.contains("`tools.listen`") && error.contains("is beyond loopback"), "{error}");
    let error = workspace("[tools]\nlisten = \"9100\"").error();
    assert!(error.contains("use \"127.0.0.1:9100\" or \"off\""), "{error}");
}
