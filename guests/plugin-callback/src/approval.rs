//! Approvals: the question that a caller reads, and the command that the caller's answer stands for.
//!
//! A caller may approve once, or for the session, or deny. It may not approve for ever: that would change what the
//! gateway asks its owner, and a caller is not its owner. After an unusable answer the caller is asked again; in the
//! end the command is denied.

use serde_json::{Value, json};
use talaria_guest::{Content, Message, Part};

use crate::text_of;

pub(crate) const DENY: &str = "/deny";
const ONCE: &str = "/approve";
const SESSION: &str = "/approve session";

/// The beginnings of the gateway's questions.
const PROMPTS: [&str; 2] =
    ["⚠️ **Dangerous command requires approval:**", "⚠️ **Smart DENY — owner override for one operation:**"];
/// The beginning of the gateway's own instructions, which name commands that a caller cannot send.
const INSTRUCTIONS: &str = "Reply `/approve`";

/// Whether a notice asks for an approval.
pub(crate) fn is_prompt(notice: &str) -> bool {
    PROMPTS.iter().any(|prompt| notice.starts_with(prompt))
}

/// The question for the caller, made of the gateway's. A hint about the last answer comes first.
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

/// The gateway's command that an answer stands for, or the reason why the answer is unusable.
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

#[cfg(test)]
mod tests {
    use talaria_guest::testing::message;

    use super::*;

    const PROMPT: &str = "⚠️ **Dangerous command requires approval:**\nrm -rf /\n\nReply `/approve`, `/approve session` or `/deny`.";
    const ONE_OPERATION: &str =
        "⚠️ **Smart DENY — owner override for one operation:**\nrm\n\nReply `/approve` or `/deny`.";

    #[test]
    fn only_the_words_themselves_decide() {
        let session_refused = Err("That is no answer to this question.");
        for (answer, expected, for_one) in [
            ("yes", Ok(ONCE), Ok(ONCE)),
            ("`/approve`", Ok(ONCE), Ok(ONCE)),
            ("Allow once.", Ok(ONCE), Ok(ONCE)),
            ("session", Ok(SESSION), session_refused),
            ("/approve session", Ok(SESSION), session_refused),
            ("No!", Ok(DENY), Ok(DENY)),
            ("cancel", Ok(DENY), Ok(DENY)),
            (
                "approve always",
                Err("A command cannot be approved for ever from here."),
                Err("A command cannot be approved for ever from here."),
            ),
            ("yes please", session_refused, session_refused),
            ("", session_refused, session_refused),
        ] {
            let message = message([Content::Text(answer.into())]);
            assert_eq!(choice(PROMPT, &message), expected, "{answer}");
            assert_eq!(choice(ONE_OPERATION, &message), for_one, "{answer}");
        }
        let data = message([Content::Text("no".into()), Content::Data(r#"{"choice":"approve"}"#.into())]);
        assert_eq!(choice(PROMPT, &data), Ok(ONCE), "data counts before text");
    }

    #[test]
    fn a_question_has_the_gateways_words_without_its_instructions() {
        assert!(is_prompt(PROMPT) && is_prompt(ONE_OPERATION) && !is_prompt("⏳ Working — 3 min"));
        for (prompt, choices) in
            [(PROMPT, "`approve`, `approve session`, `deny`"), (ONE_OPERATION, "`approve`, `deny`")]
        {
            let parts = question(prompt, Some("Again."));
            let Some(Content::Text(text)) = parts.first().map(|part| &part.content) else { panic!("a text") };
            assert!(text.ends_with(&format!("Again. Answer with one of {choices}.")), "{text}");
            assert!(!text.contains("Reply"), "{text}");
        }
    }
}
