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

#[test]
fn servers_of_tools_need_no_workspace() {
    let file = "[tools.servers.docs]\nurl = \"https://mcp.example.com/mcp/\"\ntoken = { env = \"DOCS\" }\n\
                headers = { X-Key = { env = \"KEY\" } }\ntimeout = \"5s\"\ninclude = [\"search\"]\n\
                [tools.servers.near]\nurl = \"http://tools:9000/mcp\"\nprivate = true";
    let config = Given::file(file).variable("DOCS", "t").variable("KEY", "k").load();
    assert_eq!(config.warnings, [""; 0]);
    assert!(config.tools.is_none());
    let [docs, near] = config.tool_servers.as_slice() else { panic!("{:?}", config.tool_servers) };
    assert_eq!((docs.name.as_str(), docs.url.as_str()), ("docs", "https://mcp.example.com/mcp/"));
    assert_eq!(
        (docs.timeout.as_secs(), docs.include.as_deref()),
        (5, Some(["search".to_owned()].as_slice()))
    );
    assert_eq!((docs.token.is_some(), docs.headers.len(), docs.private), (true, 1, false));
    assert_eq!((near.timeout.as_secs(), near.token.is_none(), near.private), (60, true, true));
}

#[test]
fn a_mistake_in_a_server_of_tools_names_its_key() {
    let url = "url = \"https://mcp.example.com/mcp\"";
    for (server, key, what) in [
        (format!("a_b]\n{url}"), "tools.servers.a_b", "1 to 24 letters"),
        ("docs]\nurl = \"mcp.example.com\"".into(), "url", "starts with http"),
        (format!("docs]\n{url}\ntoken = {{ env = \"UNSET\" }}"), "tools.servers.docs.token", "is not set"),
        (format!("docs]\n{url}\ntoken = \"abc\""), "token", "a secret is not written into the file"),
        (
            format!("docs]\n{url}\nheaders = {{ Host = {{ env = \"KEY\" }} }}"),
            "tools.servers.docs",
            "set by the host",
        ),
        (
            format!(
                "docs]\n{url}\ntoken = {{ env = \"KEY\" }}\nheaders = {{ Authorization = {{ env = \"KEY\" }} }}"
            ),
            "tools.servers.docs.headers",
            "keep one",
        ),
    ] {
        let error = Given::file(&format!("[tools.servers.{server}")).variable("KEY", "k").error();
        assert!(error.contains(key) && error.contains(what), "{server}: {error}");
    }
}
