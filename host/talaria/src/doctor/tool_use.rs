//! Checks whether the agent uses the tools that it is served.
//!
//! The prompt of a workspace with a team orders the agent to delegate. If turns run and no tool is ever called, the agent does
//! not have the tools, or its model does not use them. Both look the same from outside: the agent promises, and nothing
//! happens.
//!
//! Asked are the numbers of the running host, which count from its start, and the platform for the team. If one of them does
//! not answer, or there were too few turns to tell, there is no finding: other checks report what is down.

use serde_json::Value;
use talaria_hermes::doctor::json;
use talaria_workspace::Keys;

use super::machine::{Examination, local};

const NAME: &str = "tool use";

/// Turns without a tool call that are suspicious. Some need no tools, such as a greeting.
const ENOUGH: u64 = 5;

impl Examination<'_> {
    /// Warns if the host has served tools during some turns, the workspace has a team, and no tool was called.
    pub(super) async fn tool_use(&mut self) {
        if self.config.tools.is_none() {
            return;
        }
        let url = format!("http://{}/metrics", local(self.config.admin.listen));
        let answer = self.probe.get(&url, self.config.admin.token.clone()).await;
        let Some(answer) = answer.ok().filter(|answer| answer.status == 200) else { return };
        let numbers = String::from_utf8_lossy(&answer.body);
        let turns = total(&numbers, "talaria_turns_ended_total");
        let calls = total(&numbers, "talaria_tool_calls_total");
        if calls > 0 {
            let plural = if calls == 1 { "" } else { "s" };
            let text = format!(
                "{calls} call{plural} of its tools by the agent in {turns} turns since the host started"
            );
            return self.findings.ok(NAME, text);
        }
        if turns < ENOUGH {
            return;
        }
        let Some(members) = self.members().await.filter(|members| *members > 0) else { return };
        self.findings.warn(
            NAME,
            format!(
                "the workspace has a team of {members}, and the agent called none of its tools in {turns} turns since the host started"
            ),
            "run `hermes mcp list`, which must show `molecule`; if it does not, restart the gateway, which looks for tools only \
             when it starts; if it does, set `tools.tool_search.enabled: \"off\"` in its config.yaml, or choose a model that \
             calls tools reliably",
        );
    }

    /// How many workspaces this one coordinates, if the platform says so.
    async fn members(&self) -> Option<usize> {
        let workspace = self.config.workspace.as_ref()?;
        let places = workspace.assembly.places();
        let token = Keys::open(&places.folder, workspace.token.clone()).workspace_token();
        let platform = workspace.platform_url.as_str().trim_end_matches('/');
        let answer = self.probe.get(&format!("{platform}/registry/{}/peers", places.id), token).await.ok()?;
        let peers = json(&answer);
        let is_member =
            |peer: &&Value| peer.get("parent_id").and_then(Value::as_str) == Some(places.id.as_str());
        Some(peers.as_array()?.iter().filter(is_member).count())
    }
}

/// The sum of a counter over all its labels.
fn total(numbers: &str, name: &str) -> u64 {
    let of_line = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next())??;
        value.parse::<u64>().ok()
    };
    numbers.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels() {
        let numbers = "# HELP talaria_tool_calls Calls.\ntalaria_tool_calls_total{tool=\"a b\",end=\"done\"} 2\n\
                       talaria_tool_calls_total{tool=\"c\",end=\"refused\"} 3\ntalaria_tool_calls_total_other 7\n\
                       talaria_turns_ended_total 4\n# EOF\n";
        assert_eq!(total(numbers, "talaria_tool_calls_total"), 5);
        assert_eq!(total(numbers, "talaria_turns_ended_total"), 4);
        assert_eq!(total("<html>talaria_tool_calls_total{} many", "talaria_tool_calls_total"), 0);
    }
}
