//! The tool loop: calls of the host's tools are run here, and the model reads their results.
//!
//! Off by default, because the Python executor returns the calls. The granted tools are offered beside the turn's own; of
//! two with one name the host's counts. An answer that calls one of the turn's own tools ends the turn as without the
//! loop: the caller decides. All other calls are run, one after the other, in the order of the answer. What fails is a
//! result too, so that the model can act on it.
//!
//! Bounds: the rounds of calls, after which the model is told to answer without tools; the bytes of a result; and the
//! bytes of everything that is sent back, which this instance has to hold.
//!
//! A turn whose tools were called is never asked again after a restart of the host, because they may have done their work.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use talaria_guest::events::{self, Event, ToolProgress, ToolState};
use talaria_guest::{Failure, FailureKind, Turn, state, tools};
use talaria_upstream::hermes_agent::OnRestart;

use crate::calls::Call;
use crate::fault::Fault;

/// The rounds of calls unless the operator says otherwise, and at most.
const ROUNDS: u32 = 8;
pub(crate) const MOST_ROUNDS: u32 = 32;
/// The bytes of a result that the model reads: some thirty thousand tokens.
const RESULT: usize = 128 << 10;
/// The bytes of all results, and of the arguments that are repeated to the model.
const ROOM: usize = 4 << 20;
/// The bytes of a name or an id that is repeated. What is longer names nothing.
const NAME: usize = 128;
/// The checkpoint of a turn whose tools were called.
const CALLED: &[u8] = br#"{"tools":"called"}"#;

/// `settings.tool_loop`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Setting {
    Switch(bool),
    Bounded { max_rounds: Option<u32> },
}

/// What a model answered with, as far as a loop goes on with it.
pub(crate) struct Said<'a> {
    pub(crate) text: &'a str,
    pub(crate) calls: &'a [Call],
}

/// The loop of a turn.
pub(crate) struct ToolLoop {
    offered: Vec<tools::Tool>,
    /// The names of the turn's own tools.
    own: Vec<String>,
    left: u32,
    most: u32,
    is_over: bool,
    room: usize,
    on_restart: OnRestart,
    is_marked: bool,
    /// What was called so far and what came back, as messages.
    pub(crate) messages: Vec<Box<RawValue>>,
}

/// A tool in OpenAI's format, as far as its name goes.
#[derive(Deserialize)]
struct Named {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
}

#[derive(Serialize)]
struct Definition<'a> {
    r#type: &'static str,
    function: Offered<'a>,
}

#[derive(Serialize)]
struct Offered<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

// === impl Setting ===

impl Setting {
    fn rounds(&self) -> Option<u32> {
        match self {
            Self::Switch(is_on) => is_on.then_some(ROUNDS),
            Self::Bounded { max_rounds } => Some(max_rounds.unwrap_or(ROUNDS).clamp(1, MOST_ROUNDS)),
        }
    }
}

impl Default for Setting {
    fn default() -> Self {
        Self::Switch(false)
    }
}

// === impl ToolLoop ===

impl ToolLoop {
    /// The loop of a turn, if it is on, and the tools that the model is offered: the turn's own and the host's.
    pub(crate) fn begin(
        setting: &Setting,
        on_restart: OnRestart,
        own: Vec<Box<RawValue>>,
    ) -> (Option<Self>, Vec<Box<RawValue>>) {
        match setting.rounds() {
            Some(rounds) => {
                let (tool_loop, definitions) = Self::new(rounds, on_restart, own, tools::list());
                (Some(tool_loop), definitions)
            }
            None => (None, own),
        }
    }

    fn new(
        rounds: u32,
        on_restart: OnRestart,
        mut own: Vec<Box<RawValue>>,
        offered: Vec<tools::Tool>,
    ) -> (Self, Vec<Box<RawValue>>) {
        let name = |tool: &RawValue| Some(serde_json::from_str::<Named>(tool.get()).ok()?.function.name);
        own.retain(|tool| name(tool).is_none_or(|name| offered.iter().all(|offered| offered.name != name)));
        let names = own.iter().filter_map(|tool| name(tool)).collect();
        let definitions = offered.iter().filter_map(|tool| {
            let parameters = serde_json::from_str(&tool.input_schema).ok()?;
            let function = Offered { name: &tool.name, description: &tool.description, parameters };
            to_raw_value(&Definition { r#type: "function", function }).ok()
        });
        own.extend(definitions.collect::<Vec<_>>());
        let tool_loop = Self {
            offered,
            own: names,
            left: rounds,
            most: rounds,
            is_over: false,
            room: ROOM,
            on_restart,
            is_marked: false,
            messages: Vec::new(),
        };
        (tool_loop, own)
    }

    /// Fails if the turn is executed again and its tools were called before.
    pub(crate) fn check(turn: &Turn) -> Result<(), Failure> {
        match turn.checkpoint.as_deref() {
            Some(CALLED) => Err(Failure::new(
                FailureKind::Upstream,
                "interrupted by a restart, and not asked again: tools had been called and may have done their work",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the model is told to answer without tools.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Runs the calls of an answer, if they are for this loop. Returns whether the model is to be asked again.
    ///
    /// # Errors
    /// A turn that was cancelled, and a model that goes on calling after the last round without saying anything.
    pub(crate) fn follow(&mut self, said: &Said<'_>, model: &str) -> Result<bool, Failure> {
        if said.calls.is_empty() || said.calls.iter().any(|call| self.own.contains(&call.function.name)) {
            return Ok(false);
        }
        if self.is_over {
            let why = format!(
                "The model went on calling tools after {} rounds and gave no answer (settings.tool_loop.max_rounds).",
                self.most
            );
            return if said.text.is_empty() {
                Err(Failure::new(FailureKind::Upstream, why))
            } else {
                Ok(false)
            };
        }
        self.is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        let round = self.most - self.left;
        let mut calls = Vec::with_capacity(said.calls.len());
        let mut results = Vec::with_capacity(said.calls.len());
        for (index, call) in said.calls.iter().enumerate() {
            // An answer names each call once; some servers name none.
            let is_taken = said.calls.iter().take(index).any(|before| before.id == call.id);
            let id = match call.id.is_empty() || call.id.len() > NAME || is_taken {
                true => format!("call_{round}_{index}"),
                false => call.id.clone(),
            };
            let name = call.function.name.as_str();
            let name = name.get(..name.floor_char_boundary(NAME)).unwrap_or_default();
            let (is_valid, result) = match self.is_over {
                true => (true, self.refusal()),
                false => self.run((name, call.arguments()), &id, model)?,
            };
            let arguments = self.repeated(call.arguments(), is_valid);
            let function = json!({ "name": name, "arguments": arguments });
            calls.push(json!({ "id": id, "type": "function", "function": function }));
            let content = self.fitting(&result);
            results.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
        }
        let text = (!said.text.is_empty()).then_some(said.text);
        let answer = json!({ "role": "assistant", "content": text, "tool_calls": calls });
        let messages = std::iter::once(answer).chain(results).map(|message| to_raw_value(&message));
        self.messages.extend(messages.filter_map(Result::ok));
        Ok(true)
    }

    /// Runs a call. Returns whether its arguments are an object of a size that a tool takes, and the result.
    fn run(
        &mut self,
        (name, arguments): (&str, &str),
        id: &str,
        model: &str,
    ) -> Result<(bool, String), Failure> {
        let name = self.host_name(name).to_owned();
        self.mark()?;
        progress(id, &name, ToolState::Started, model)?;
        let called = tools::call(&name, arguments);
        let state = if called.is_ok() { ToolState::Completed } else { ToolState::Failed };
        if let Err(tools::Error { kind: tools::ErrorKind::Cancelled, .. }) = &called {
            return Err(Fault::cancelled().failure(model));
        }
        progress(id, &name, state, model)?;
        Ok(match called {
            Ok(result) => (true, result),
            Err(error) => {
                let is_valid = !matches!(error.kind, tools::ErrorKind::Invalid | tools::ErrorKind::TooLarge);
                (is_valid, failed(&error.message))
            }
        })
    }

    /// Sees to it, before a tool is called, that the turn is not asked again after a restart.
    fn mark(&mut self) -> Result<(), Failure> {
        if self.is_marked || self.on_restart == OnRestart::Fail {
            return Ok(());
        }
        self.is_marked = true;
        state::checkpoint(CALLED).map_err(|error| {
            let what =
                format!("no tool was called, because a restart might call it again: {}", error.message);
            Failure::new(FailureKind::Internal, what)
        })
    }

    /// The name of a tool at the host. Prompts that are written for agents with a connection to the same tools call them
    /// `mcp__SERVER__NAME`.
    fn host_name<'a>(&self, name: &'a str) -> &'a str {
        let is_known = |name: &str| self.offered.iter().any(|tool| tool.name == name);
        let short = name.strip_prefix("mcp__").and_then(|rest| Some(rest.split_once("__")?.1));
        short.filter(|short| !is_known(name) && is_known(short)).unwrap_or(name)
    }

    fn refusal(&self) -> String {
        failed(&format!(
            "not called: this turn has had its {} rounds of tool calls; answer now with what you have, without tools",
            self.most
        ))
    }

    /// The arguments that are repeated to the model. Servers reject a conversation with others than an object in it; the
    /// result says what was wrong.
    fn repeated<'a>(&mut self, arguments: &'a str, is_valid: bool) -> &'a str {
        match self.room.checked_sub(arguments.len()) {
            Some(left) if is_valid && is_object(arguments) => {
                self.room = left;
                arguments
            }
            _ => "{}",
        }
    }

    /// The part of a result that the model reads. A cut is visible to it.
    fn fitting(&mut self, result: &str) -> String {
        let end = result.floor_char_boundary(RESULT.min(self.room));
        let shown = result.get(..end).unwrap_or_default();
        self.room = self.room.saturating_sub(end);
        match end == result.len() {
            true => shown.to_owned(),
            false => format!("{shown}\n[cut here: {end} of {} bytes]", result.len()),
        }
    }
}

fn is_object(text: &str) -> bool {
    matches!(serde_json::from_str::<Value>(text), Ok(Value::Object(_)))
}

/// The result of a call that failed: it tells the model why.
fn failed(why: &str) -> String {
    json!({ "status": "failed", "reason": why }).to_string()
}

fn progress(id: &str, name: &str, state: ToolState, model: &str) -> Result<(), Failure> {
    let tool = ToolProgress { id: id.into(), name: name.into(), state, label: None, metadata: None };
    events::emit(&Event::ToolProgress(tool)).map_err(|error| Fault::from(error).failure(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        to_raw_value(value).unwrap()
    }

    fn own(name: &str) -> Box<RawValue> {
        raw(&json!({ "type": "function", "function": { "name": name, "parameters": {} } }))
    }

    fn tool(name: &str) -> tools::Tool {
        tools::Tool {
            name: name.into(),
            description: "Does it.".into(),
            input_schema: r#"{"type":"object"}"#.into(),
        }
    }

    fn begun(rounds: u32) -> (ToolLoop, Vec<Box<RawValue>>) {
        let own = vec![own("mine"), own("list_peers"), raw(&json!({ "type": "web_search" }))];
        ToolLoop::new(rounds, OnRestart::Fail, own, vec![tool("list_peers"), tool("delegate_task")])
    }

    fn call(id: &str, name: &str, arguments: &str) -> Call {
        Call::new(id, name, arguments)
    }

    #[test]
    fn the_hosts_tools_are_offered_beside_the_turns_own_and_a_name_once() {
        let (tool_loop, definitions) = begun(8);
        let texts: Vec<&str> = definitions.iter().map(|tool| tool.get()).collect();
        let host = r#"{"type":"function","function":{"name":"list_peers","description":"Does it.","parameters":{"type":"object"}}}"#;
        assert_eq!(texts.len(), 4, "{texts:?}");
        assert_eq!((texts[0], texts[2]), (own("mine").get(), host));
        assert_eq!(texts.iter().filter(|text| text.contains("list_peers")).count(), 1);
        assert_eq!(tool_loop.own, ["mine"]);
    }

    #[test]
    fn a_call_of_the_turns_own_tool_is_the_callers() {
        let (mut tool_loop, _) = begun(8);
        let calls = [call("a", "list_peers", "{}"), call("b", "mine", "{}")];
        assert!(!tool_loop.follow(&Said { text: "", calls: &calls }, "m").unwrap());
        assert!(!tool_loop.follow(&Said { text: "hi", calls: &[] }, "m").unwrap());
        assert!(tool_loop.messages.is_empty());
    }

    #[test]
    fn after_the_last_round_the_model_is_told_once_and_then_fails_in_words() {
        let (mut tool_loop, _) = begun(1);
        tool_loop.left = 0;
        let calls =
            [call("a", "list_peers", "{}"), call("", "list_peers", "[1"), call("a", &"x".repeat(999), "")];
        let said = Said { text: "", calls: &calls };
        assert!(tool_loop.follow(&said, "m").unwrap() && tool_loop.is_over());
        let messages: Vec<Value> =
            tool_loop.messages.iter().map(|message| serde_json::from_str(message.get()).unwrap()).collect();
        assert_eq!(messages.len(), 4);
        let ids: Vec<_> =
            messages[1..].iter().map(|message| message["tool_call_id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["a", "call_1_1", "call_1_2"], "each call has a result of its own");
        assert_eq!(
            messages[0]["tool_calls"][1]["function"]["arguments"], "{}",
            "broken JSON is not repeated"
        );
        assert_eq!(messages[0]["tool_calls"][2]["function"]["name"], "x".repeat(NAME));
        assert!(messages[3]["content"].as_str().unwrap().contains("without tools"));
        let failure = tool_loop.follow(&said, "m").unwrap_err();
        assert!(failure.message.contains("after 1 rounds"), "{}", failure.message);
        assert!(!tool_loop.follow(&Said { text: "well", calls: &calls }, "m").unwrap());
    }

    #[test]
    fn names_with_the_prefix_of_a_server_are_the_hosts() {
        let (tool_loop, _) = begun(8);
        for (name, expected) in [
            ("list_peers", "list_peers"),
            ("mcp__molecule__list_peers", "list_peers"),
            ("mcp__molecule__rm", "mcp__molecule__rm"),
            ("mcp__list_peers", "mcp__list_peers"),
            ("rm", "rm"),
        ] {
            assert_eq!(tool_loop.host_name(name), expected);
        }
    }

    #[test]
    fn what_the_model_reads_is_bounded_and_a_cut_is_visible() {
        let (mut tool_loop, _) = begun(8);
        assert_eq!(tool_loop.fitting("short"), "short");
        let long = tool_loop.fitting(&"ä".repeat(RESULT));
        assert!(
            long.len() < RESULT + 100 && long.ends_with(&format!("of {} bytes]", 2 * RESULT)),
            "{}",
            long.len()
        );
        for _ in 0..100 {
            tool_loop.fitting(&"x".repeat(RESULT));
        }
        assert_eq!(tool_loop.fitting("more"), "\n[cut here: 0 of 4 bytes]");
        assert_eq!(tool_loop.repeated(r#"{"a":1}"#, true), "{}");
    }

    #[test]
    fn the_setting_is_a_switch_or_a_bound() {
        for (setting, rounds) in [
            ("false", None),
            ("true", Some(8)),
            ("{}", Some(8)),
            (r#"{"max_rounds":3}"#, Some(3)),
            (r#"{"max_rounds":99}"#, Some(32)),
        ] {
            assert_eq!(serde_json::from_str::<Setting>(setting).unwrap().rounds(), rounds, "{setting}");
        }
        assert_eq!(Setting::default().rounds(), None);
    }
}
