//! Skills: folders with a `SKILL.md`, in the format of agentskills.io.
//!
//! The text after the front matter goes into the prompt. Tools are data here: definitions in OpenAI's format, under
//! `tools` in the front matter or in a `tools.json` beside `SKILL.md`. This module never runs a skill's scripts: the
//! executor decides what a tool does. All files of a skill are in its folder.

use serde_json::{Map, Value};
use talaria_config::yaml;

use crate::folder::{Folder, Reader, Trouble};
use crate::prompt;

/// The file that describes a skill.
const FILE: &str = "SKILL.md";

/// The file of its tools, beside it.
const TOOLS: &str = "tools.json";

/// The maximum number of skills of a workspace.
const MOST: usize = 200;

/// A skill.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// The name of its folder.
    pub id: String,
    /// The name shown to people.
    pub name: String,
    /// A description of what it does.
    pub description: String,
    /// Keywords for searching.
    pub tags: Vec<String>,
    /// Example prompts.
    pub examples: Vec<String>,
    /// The text that goes into the prompt.
    pub instructions: String,
    /// Its tool definitions, not validated.
    pub(crate) tools: Vec<Value>,
    /// The path of its `SKILL.md`.
    pub(crate) source: String,
}

/// Loads the named skills in `folder` into `known`, except those that `known` already has.
pub(crate) fn load(
    folder: &Folder,
    names: &[String],
    runtime: Option<&str>,
    reader: &mut Reader,
    known: &mut Vec<Skill>,
) {
    for name in names {
        if known.iter().any(|skill| skill.id == *name) {
            continue;
        }
        if known.len() == MOST {
            reader
                .trouble(folder.path(), format!("there are more than {MOST} skills; the rest are left out"));
            return;
        }
        if let Some(skill) = one(folder, name, runtime, reader) {
            known.push(skill);
        }
    }
}

fn one(folder: &Folder, name: &str, runtime: Option<&str>, reader: &mut Reader) -> Option<Skill> {
    if name.contains('/') {
        reader.trouble(name, "is not the name of a skill; left out");
        return None;
    }
    let before = reader.troubles.len();
    let place = reader.enter(folder, name);
    let text = place.as_ref().and_then(|place| reader.text(place, FILE, prompt::FILE_BYTES));
    let (Some(place), Some(text)) = (place, text) else {
        if reader.troubles.len() == before {
            let path = folder.path().join(name).join(FILE);
            reader.trouble(&path, "there is no such file; the skill is left out");
        }
        return None;
    };
    let path = place.path().join(FILE);
    let (front, body) = split(&text);
    let front = front.map(yaml::mapping).transpose().unwrap_or_else(|what| {
        reader.trouble(&path, format!("its front matter is {what}; read without it"));
        None
    });
    let front = front.unwrap_or_default();
    if !fits(&front, runtime) {
        return None;
    }
    let mut tools = match front.get("tools") {
        Some(Value::Array(tools)) => tools.clone(),
        _ => Vec::new(),
    };
    if let Some(text) = reader.text(&place, TOOLS, prompt::FILE_BYTES) {
        match serde_json::from_str(&text) {
            Ok(Value::Array(more)) => tools.extend(more),
            _ => reader.trouble(place.path().join(TOOLS), "is not a JSON list of tools; left out"),
        }
    }
    Some(Skill {
        id: name.to_owned(),
        name: word(&front, "name").unwrap_or_else(|| name.to_owned()),
        description: word(&front, "description").unwrap_or_default(),
        tags: words(&front, "tags"),
        examples: words(&front, "examples"),
        instructions: body.trim().to_owned(),
        tools,
        source: path.to_string_lossy().into_owned(),
    })
}

/// Splits a text into its front matter, if there is one, and the rest.
fn split(text: &str) -> (Option<&str>, &str) {
    let Some(rest) = text.strip_prefix("---").and_then(|rest| rest.split_once('\n')) else {
        return (None, text);
    };
    let (after_dashes, rest) = rest;
    if !after_dashes.trim().is_empty() {
        return (None, text);
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return (rest.get(..at), rest.get(at + line.len()..).unwrap_or_default());
        }
        at += line.len();
    }
    (None, text)
}

/// Whether a skill is meant for this runtime: it names it, or names none.
fn fits(front: &Map<String, Value>, runtime: Option<&str>) -> bool {
    let Some(runtime) = runtime else { return true };
    let wanted = match front.get("runtime") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(_)) => words(front, "runtime"),
        _ => Vec::new(),
    };
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == "*" || wanted == runtime)
}

fn word(front: &Map<String, Value>, key: &str) -> Option<String> {
    let text = front.get(key)?.as_str()?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

fn words(front: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = front.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the valid tool definitions: OpenAI functions with unique names. Of two with the same name, the first is used.
pub(crate) fn tools<'a>(
    all: impl IntoIterator<Item = (&'a str, &'a Value)>,
    troubles: &mut Vec<Trouble>,
) -> Vec<Value> {
    let mut names = std::collections::HashSet::new();
    let mut tools = Vec::new();
    for (source, tool) in all {
        let name = tool.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
        let usable = name.filter(|name| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            (1..=64).contains(&name.len()) && name.bytes().all(fits)
        });
        match usable {
            Some(name) if tool.get("type").and_then(Value::as_str) == Some("function") => {
                if names.insert(name.to_owned()) {
                    tools.push(tool.clone());
                } else {
                    troubles.push(Trouble::new(
                        source,
                        format!("the tool `{name}` is defined twice; the first definition is used"),
                    ));
                }
            }
            _ => {
                let what = "a tool is not a definition in OpenAI's format ({\"type\": \"function\", \"function\": {\"name\": …}}); left out";
                troubles.push(Trouble::new(source, what));
            }
        }
    }
    tools
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn front_matter_is_between_two_lines_of_dashes() {
        assert_eq!(split("---\nname: x\n---\nbody\n---\n"), (Some("name: x\n"), "body\n---\n"));
        for none in ["body", "---\nname: x\n", "--- x\nname\n---\n", "", "---"] {
            assert_eq!(split(none), (None, none), "{none:?}");
        }
        assert_eq!(split("---\r\na: b\r\n---\r\nbody"), (Some("a: b\r\n"), "body"));
    }

    #[test]
    fn malformed_and_duplicate_tools_are_left_out() {
        let good = json!({ "type": "function", "function": { "name": "look", "parameters": {} } });
        let all = [
            good.clone(),
            json!("look"),
            json!({ "type": "function", "function": { "name": "no good" } }),
            good.clone(),
        ];
        let mut troubles = Vec::new();
        assert_eq!(tools(all.iter().map(|tool| ("x", tool)), &mut troubles), [good]);
        assert_eq!(troubles.len(), 3);
    }

    #[test]
    fn a_skill_is_loaded_for_the_runtimes_that_it_names() {
        let front = |yaml: &str| yaml::mapping(yaml).unwrap();
        for (yaml, hermes) in [
            ("", true),
            ("runtime: hermes", true),
            ("runtime: [claude-code]", false),
            ("runtime: ['*']", true),
            ("runtime: 3", true),
        ] {
            assert_eq!(fits(&front(yaml), Some("hermes")), hermes, "{yaml}");
        }
        assert!(fits(&front("runtime: claude-code"), None));
    }
}
