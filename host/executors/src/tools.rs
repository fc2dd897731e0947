//! The tools of a grant, compared with those that the host has.
//!
//! A name that the host does not know is a warning and refuses nothing: a tool of another server may come later, and the
//! other tools work.

use std::time::Duration;

use talaria_config::nearest;
use talaria_turns::{ToolSpec, Toolbox as _, Toolboxes};
use tokio::time::timeout;

/// The longest wait for the list of tools.
const LISTING: Duration = Duration::from_secs(15);

/// What is wrong with the granted tools, a sentence each. `uses_tools` says whether the component calls any.
pub(crate) async fn problems(granted: &[String], uses_tools: bool, tools: &Toolboxes) -> Vec<String> {
    if granted.is_empty() {
        return Vec::new();
    }
    if !uses_tools {
        return vec!["`grant.tools` has no effect: its component does not call tools of the host".into()];
    }
    match timeout(LISTING, tools.tools()).await {
        Ok(known) => unknown(granted, &known),
        Err(_) => vec!["`grant.tools` was not checked: the tools of the host were not listed in time".into()],
    }
}

fn unknown(granted: &[String], known: &[ToolSpec]) -> Vec<String> {
    if known.is_empty() {
        let what = "`grant.tools` has no effect: this host has no tools";
        return vec![format!(
            "{what}; a workspace has some, unless `tools.listen` is \"off\", and `tools.servers` adds others"
        )];
    }
    let problem = |name: &String| {
        let near = nearest(name, known.iter().map(|tool| tool.name.as_str()));
        let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        format!("`grant.tools` names `{name}`, which this host does not have{hint}")
    };
    granted.iter().filter(|name| known.iter().all(|tool| tool.name != **name)).map(problem).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_unknown_tool_in_a_grant_is_a_warning_with_the_nearest_name() {
        let tool =
            |name: &str| ToolSpec { name: name.into(), description: String::new(), input_schema: json!({}) };
        let host = ["list_peers", "delegate_task"].map(tool);
        let granted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let two = granted(&["list_peers", "delegate_tsk"]);
        assert_eq!(
            unknown(&two, &host),
            [
                "`grant.tools` names `delegate_tsk`, which this host does not have; did you mean `delegate_task`?"
            ]
        );
        assert_eq!(
            unknown(&granted(&["rm"]), &host),
            ["`grant.tools` names `rm`, which this host does not have"]
        );
        assert_eq!(unknown(&granted(&["list_peers"]), &host), [""; 0]);
        let none = Toolboxes::default();
        assert_eq!(problems(&[], true, &none).await, [""; 0]);
        for uses_tools in [false, true] {
            let problems = problems(&two, uses_tools, &none).await;
            assert!(problems.len() == 1 && problems[0].contains("has no effect"), "{problems:?}");
        }
    }
}
