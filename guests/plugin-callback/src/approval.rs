//! Commands that the gateway does not run before somebody says so.
//!
//! A caller may approve once, or for the session, or deny. It may not approve for ever: that would change what the
//! gateway asks its owner, and a caller is not its owner. What makes no sense is asked again, and denied in the end.

use serde_json::{Value, json};
use talaria_guest::{Content, Message, Part};

use crate::text_of;

pub(crate) const DENY: &str = "/deny";
const ONCE: &str = "/approve";
const SESSION: &str = "/approve session";

/// How the gateway's questions begin.
const PROMPTS: [&str; 2] =
    ["⚠️ **Dangerous command requires approval:**", "⚠️ **Smart DENY — owner override for one operation:**"];
/// Where its own instructions begin, which name commands that a caller cannot send.
const INSTRUCTIONS: &str = "Reply `/approve`";

/// Whether a notice is a question of the gateway.
pub(crate) fn is_prompt(notice: &str) -> bool {
    PROMPTS.iter().any(|prompt| notice.starts_with(prompt))
}

/// The gateway's question as the caller's.
pub(crate) fn question(prompt: &str, hint: Option<&str>) -> Vec<Part> {
    let asked = prompt.split(INSTRUCTIONS).next().unwrap_or(prompt).trim_end();
    let choices = choices(prompt);
    let listed = choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ");
    let hint = hint.map(|hint| format!("{hint} ")).unwrap_or_default();
    let data = json!({ "approval": { "choices": choices } });
    vec![
        Part::text(format!("{asked}\n\n{hint}Answer with one of {listed}.")),
        Part::new(Content::Data(data.to_string())),
    ]
}

/// The command that an answer stands for, or why it stands for none.
pub(crate) fn choice(prompt: &str, answer: &Message) -> Result<&'static str, &'static str> {
    let said = answer.parts.iter().find_map(|part| match &part.content {
        Content::Data(data) => {
            let data: Value = serde_json::from_str(data).ok()?;
            data.get("choice").and_then(Value::as_str).map(str::to_owned)
        }
        _ => None,
    });
    let said = said.unwrap_or_else(|| text_of(&answer.parts)).to_lowercase();
    let words: Vec<&str> =
        said.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        ["deny" | "denied" | "no" | "n" | "reject" | "refuse" | "cancel"] => Ok(DENY),
        ["approve" | "approved" | "yes" | "y" | "ok" | "allow" | "once"] | ["approve" | "allow", "once"] => {
            Ok(ONCE)
        }
        ["session"] | ["approve" | "allow", "session"] if choices(prompt).contains(&"approve session") => {
            Ok(SESSION)
        }
        [.., "always" | "permanently"] => Err("A command cannot be approved for ever from here."),
        _ => Err("That is no answer to this question."),
    }
}

fn choices(prompt: &str) -> Vec<&'static str> {
    if prompt.contains("`/approve session`") {
        vec!["approve", "approve session", "deny"]
    } else {
        vec!["approve", "deny"]
    }
}
