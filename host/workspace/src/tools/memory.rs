//! The tools for memory.
//!
//! Older platforms search by themselves; newer ones ignore the query and return the newest memories. So matches are looked for
//! here too: memories with the most words of the query come first, and those without any are left out if others have some.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use talaria_redact::Redactor;

use super::arguments::Arguments;
use super::refusal::Refusal;
use super::{TeamTools, WITHIN, text, untrusted};

const SCOPES: [&str; 3] = ["LOCAL", "TEAM", "GLOBAL"];

/// Bytes of one memory.
const CONTENT: usize = 32 << 10;

/// Bytes of all memories in a result.
const SHOWN: usize = 64 << 10;

impl TeamTools {
    pub(super) async fn commit_memory(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let content = arguments.required("content", CONTENT)?;
        let scope = arguments.word("scope", &SCOPES)?.unwrap_or("LOCAL");
        // Memory outlives the conversation and is read by others, so everything that looks like a secret is left out.
        let content = Redactor::process().all(content).into_owned();
        let body = json!({ "content": content, "scope": scope, "workspace_id": self.assembly.places().id });
        let answer = self.platform.post(&self.path("memories"), &body, WITHIN).await?;
        let summary: String = content.chars().take(80).collect();
        let entry = json!({ "activity_type": "memory_write", "summary": format!("[{scope}] {summary}") });
        // Only for the platform's display.
        let _ = self.platform.post(&self.path("activity"), &entry, WITHIN).await;
        Ok(json!({ "status": "remembered", "id": text(&answer, "id"), "scope": scope }).to_string())
    }

    pub(super) async fn recall_memory(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let query = arguments.text("query", 1000)?.unwrap_or_default();
        let scope = arguments.word("scope", &SCOPES)?.unwrap_or_default();
        let encoded = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let path = self.path(&format!("memories?q={encoded}&scope={scope}&limit=50"));
        let answer = self.platform.get(&path, WITHIN).await?;
        let rows = answer.as_array().or_else(|| answer.get("memories")?.as_array());
        let rows = rows.map(Vec::as_slice).unwrap_or_default();
        let found = matching(rows, query, scope);
        if found.is_empty() {
            return Ok("No memories found.".into());
        }
        let (mut lines, mut left_out) = (String::new(), 0);
        for row in found {
            let line = format!("[{}] {}\n", untrusted::line(text(row, "scope"), 20), text(row, "content"));
            match lines.len() + line.len() <= SHOWN {
                true => lines.push_str(&line),
                false => left_out += 1,
            }
        }
        if left_out > 0 {
            lines.push_str(&format!("({left_out} more; ask for something narrower)\n"));
        }
        // Others of the team and the organisation write here too.
        Ok(untrusted::wrap("memory", lines.trim_end()))
    }
}

fn matching<'v>(rows: &'v [Value], query: &str, scope: &str) -> Vec<&'v Value> {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let of_scope = rows.iter().filter(|row| !text(row, "content").is_empty()).filter(|row| {
        let of = text(row, "scope");
        scope.is_empty() || of.is_empty() || of.eq_ignore_ascii_case(scope)
    });
    let score = |row: &Value| {
        let content = text(row, "content").to_lowercase();
        words.iter().filter(|word| content.contains(word.as_str())).count()
    };
    let mut scored: Vec<(usize, &Value)> = of_scope.map(|row| (score(row), row)).collect();
    if scored.iter().any(|(score, _)| *score > 0) {
        scored.retain(|(score, _)| *score > 0);
    }
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_searched_here_if_the_platform_does_not() {
        let rows = [
            json!({ "content": "Fish like water", "scope": "LOCAL" }),
            json!({ "content": "The deploy key is in the vault", "scope": "TEAM" }),
            json!({ "content": "deploy on Fridays, key people are away", "scope": "LOCAL" }),
            json!({ "scope": "LOCAL" }),
            json!(7),
        ];
        let found = |query, scope| -> Vec<usize> {
            let found = matching(&rows, query, scope);
            found.iter().filter_map(|row| rows.iter().position(|known| known == *row)).collect()
        };
        assert_eq!(found("", ""), [0, 1, 2]);
        assert_eq!(found("DEPLOY friday", ""), [2, 1]);
        assert_eq!(found("deploy", "TEAM"), [1]);
        assert_eq!(found("people fish", "LOCAL"), [0, 2]);
        assert_eq!(found("zebra", ""), [0, 1, 2], "the platform may know better");
    }
}
