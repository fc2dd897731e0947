//! Calls the host as its prompt says, `VERB [ARGUMENT]`, for the host's tests.

use serde_json::{Value, json};
use talaria_guest::events::{self, Artifact, Event};
use talaria_guest::{
    Content, Description, Executor, Failure, FailureKind, FinalState, Needs, Outcome, Part, Request,
    SetupContext, Turn, callback, config, control, http, log, span, state, tools,
};

struct Probe;

impl Executor for Probe {
    fn describe() -> Description {
        Description {
            settings_schema: json!({
                "type": "object",
                "properties": { "base_url": { "type": "string", "default": "http://127.0.0.1:9/" } },
            })
            .to_string(),
            needs: Needs {
                egress: vec!["GET {setting:base_url}/*".into(), "POST {setting:base_url}/*".into()],
                secrets: vec!["PROBE_KEY".into()],
                callbacks: true,
            },
            streaming: true,
            ..Description::new("probe", env!("CARGO_PKG_VERSION"), "Does what its prompt says")
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Value = talaria_guest::settings(&context.settings)?;
        match settings.get("setup").and_then(Value::as_str) {
            Some("down") => Err(Failure::new(FailureKind::Upstream, "the upstream is down")),
            Some("invalid") => Err(Failure::new(FailureKind::InvalidSettings, "settings.setup is invalid")),
            _ => Ok(()),
        }
    }

    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        let settings: Value = talaria_guest::settings(&turn.settings)?;
        let base = settings.get("base_url").and_then(Value::as_str).unwrap_or_default().trim_end_matches('/');
        let at = checkpoint.map_or("nowhere".into(), |data| String::from_utf8_lossy(&data).into_owned());
        Request::new("POST", format!("{base}/stop/{at}")).fetch().map_err(upstream)?;
        Ok(())
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let (verb, argument) = turn.text.split_once(' ').unwrap_or((&turn.text, ""));
        match verb {
            "echo" => Ok(Outcome::text(argument)),
            "turn" => Ok(Outcome::text(
                json!({
                    "task": turn.task_id, "context": turn.context_id, "message": turn.message.id, "text": turn.text,
                    "history": turn.history.len(), "settings": turn.settings, "streaming": turn.streaming,
                    "budget_ms": turn.budget_ms, "principal": turn.principal.map(|principal| principal.name),
                    "session_message": turn.session.message_id, "async_delivery": turn.session.async_delivery,
                    "metadata": turn.metadata, "base_url": config::get("base_url"),
                })
                .to_string(),
            )),
            "parts" => Ok(Outcome::new(FinalState::Completed, turn.message.parts)),
            "ask-back" => Ok(Outcome::new(FinalState::InputRequired, vec![Part::text(argument)])),
            "reject" => Ok(Outcome::new(FinalState::Rejected, vec![Part::text(argument)])),
            "fail" => Err(Failure::new(FailureKind::Upstream, argument)),
            "spin" => loop {
                core::hint::black_box(0);
            },
            "panic" => {
                #[expect(clippy::panic, reason = "that is what was asked for")]
                {
                    panic!("{argument}")
                }
            }
            "recurse" => Ok(Outcome::text(recurse(1).to_string())),
            "allocate" => {
                let mut held = Vec::new();
                loop {
                    held.push(vec![1_u8; 1 << 20]);
                    core::hint::black_box(&held);
                }
            }
            "hold" => {
                let megabytes: usize = argument.parse().unwrap_or(1);
                let held = vec![1_u8; megabytes << 20];
                Ok(Outcome::text(core::hint::black_box(&held).len().to_string()))
            }
            "sleep" => Ok(Outcome::text(control::sleep(argument.parse().unwrap_or(0)).to_string())),
            "remaining" => Ok(Outcome::text(control::remaining_ms().to_string())),
            "log" => {
                log::write(log::Level::Info, argument, Some(r#"{"from":"probe"}"#));
                Ok(Outcome::text("logged"))
            }
            "flood" => {
                for line in 0..100_000 {
                    log::write(log::Level::Info, &format!("line {line}"), None);
                }
                Ok(Outcome::text("flooded"))
            }
            "emit" => {
                for word in argument.split_inclusive(' ') {
                    emit(&Event::TextDelta(word.into()))?;
                }
                Ok(Outcome::new(FinalState::Completed, Vec::new()))
            }
            "emit-status" => {
                emit(&Event::Status(argument.into()))?;
                Ok(Outcome::text("said"))
            }
            "emit-artifact" => {
                for (piece, last) in [("one ", false), ("two", true)] {
                    emit(&Event::Artifact(Artifact {
                        id: "a1".into(),
                        name: Some("numbers".into()),
                        description: None,
                        parts: vec![Part::text(piece)],
                        append: last,
                        last,
                        metadata: None,
                    }))?;
                }
                Ok(Outcome::text("emitted"))
            }
            "emit-huge" => {
                let error = events::emit(&Event::TextDelta("x".repeat(argument.parse().unwrap_or(0)))).err();
                Ok(Outcome::text(error.map_or("taken".into(), |error| error.message)))
            }
            "huge-reply" => Ok(Outcome::text("x".repeat(argument.parse().unwrap_or(0)))),
            "bad-metadata" => Ok(Outcome { metadata: Some("{not json".into()), ..Outcome::text("said") }),
            "fetch" => Ok(Outcome::text(fetch(argument, &[]))),
            "fetch-with-key" => Ok(Outcome::text(fetch(argument, &[("authorization", "Bearer {secret:PROBE_KEY}")]))),
            "has-secret" => Ok(Outcome::text(config::has_secret(argument).to_string())),
            "sse" => {
                let exchange = Request::new("GET", argument).open().map_err(upstream)?;
                let mut seen = Vec::new();
                while let Some(event) = exchange.next_event().map_err(upstream)? {
                    seen.push(json!({ "event": event.event, "data": event.data, "id": event.id }));
                }
                Ok(Outcome::text(Value::from(seen).to_string()))
            }
            // Emits a status while no event comes.
            "sse-await" => {
                let exchange = Request::new("GET", argument).open().map_err(upstream)?;
                let mut idle = false;
                let mut seen = Vec::new();
                loop {
                    if !exchange.await_event(1) {
                        if !std::mem::replace(&mut idle, true) {
                            emit(&Event::Status("idle".into()))?;
                        }
                        continue;
                    }
                    match exchange.next_event().map_err(upstream)? {
                        Some(event) => seen.push(event.data),
                        None => break,
                    }
                }
                Ok(Outcome::text(seen.join("+")))
            }
            "set" => {
                let (key, value) = argument.split_once(' ').unwrap_or((argument, ""));
                let value = (!value.is_empty()).then_some(value.as_bytes());
                Ok(Outcome::text(state::set(key, value).map_or_else(|error| error.message, |()| "set".into())))
            }
            "history" => {
                let history = state::history(argument.parse().unwrap_or(0));
                let history = history.map_err(|error| Failure::new(FailureKind::Internal, error.message))?;
                let lines = history.iter().map(|message| {
                    let texts = message.parts.iter().filter_map(|part| match &part.content {
                        Content::Text(text) => Some(text.as_str()),
                        _ => None,
                    });
                    json!([message.role == talaria_guest::Role::User, texts.collect::<String>()])
                });
                Ok(Outcome::text(Value::from(lines.collect::<Vec<_>>()).to_string()))
            }
            "get" => Ok(Outcome::text(match state::get(argument) {
                Ok(Some(value)) => String::from_utf8_lossy(&value).into_owned(),
                Ok(None) => "(none)".into(),
                Err(error) => error.message,
            })),
            // Expects a reply, emits the URL for it, and waits.
            "expect" => Ok(Outcome::text(match callback::expect(argument) {
                Err(error) => format!("{:?}", error.kind),
                Ok(pending) => {
                    emit(&Event::Status(pending.reply_url()))?;
                    match pending.wait(None) {
                        Ok(delivery) => String::from_utf8_lossy(&delivery.body).into_owned(),
                        Err(error) => format!("{:?}: {}", error.kind, error.message),
                    }
                }
            })),
            "tools" => {
                let names: Vec<Value> = tools::list().iter().map(|tool| json!([tool.name, tool.input_schema])).collect();
                Ok(Outcome::text(Value::from(names).to_string()))
            }
            // Calls a tool: `tool NAME ARGUMENTS`; a number of bytes in place of arguments makes up a text.
            "tool" => Ok(Outcome::text(tool(argument))),
            // The same again and again until a call has no result: `tool-until MOST NAME ARGUMENTS`.
            "tool-until" => {
                let (most, call) = argument.split_once(' ').unwrap_or((argument, ""));
                let most = most.parse().unwrap_or(0);
                let failed = (0..most).map(|made| (made, tool(call))).find(|(_, said)| said.starts_with("ErrorKind"));
                Ok(Outcome::text(failed.map_or("all".into(), |(made, said)| format!("{made} {said}"))))
            }
            "session" => {
                let session = &turn.session;
                let set = |name| control::session(name);
                Ok(Outcome::text(
                    json!({
                        "platform": session.platform, "source": session.source, "chat-id": session.chat_id,
                        "chat-name": session.chat_name, "thread-id": session.thread_id, "user-id": session.user_id,
                        "user-name": session.user_name, "key": session.key, "id": session.id,
                        "message-id": session.message_id, "cwd": session.cwd,
                        "async-delivery": session.async_delivery,
                        "set": [
                            set("platform"), set("source"), set("chat-id"), set("chat-name"), set("thread-id"),
                            set("user-id"), set("user-name"), set("key"), set("id"), set("message-id"), set("cwd"),
                        ],
                    })
                    .to_string(),
                ))
            }
            "ask" => {
                let mut answers = Vec::new();
                for question in argument.split(',') {
                    let answer = events::ask(&[Part::text(question)])
                        .map_err(|error| Failure::new(FailureKind::Cancelled, error.message))?;
                    answers.extend(answer.parts.into_iter().filter_map(|part| match part.content {
                        Content::Text(text) => Some(text),
                        _ => None,
                    }));
                }
                Ok(Outcome::text(answers.join("+")))
            }
            // Asks, and withdraws the question if no answer comes in time: `pose MS QUESTION[,QUESTION]`.
            "pose" => {
                let (ms, questions) = argument.split_once(' ').unwrap_or((argument, "which?"));
                let mut answers = Vec::new();
                for question in questions.split(',') {
                    let posed = events::pose(&[Part::text(question)])
                        .map_err(|error| Failure::new(FailureKind::Internal, error.message))?;
                    let answer = posed
                        .wait(ms.parse().unwrap_or(0))
                        .map_err(|error| Failure::new(FailureKind::Cancelled, error.message))?;
                    answers.extend(answer.map_or(vec![Part::text("withdrawn")], |answer| answer.parts).into_iter().filter_map(
                        |part| match part.content {
                            Content::Text(text) => Some(text),
                            _ => None,
                        },
                    ));
                }
                Ok(Outcome::text(answers.join("+")))
            }
            // Stores a checkpoint, then runs the rest of its prompt as a prompt of its own; after a restart it reports
            // the checkpoint.
            "checkpoint" => match turn.checkpoint {
                Some(data) => Ok(Outcome::text(format!("resumed at {}", String::from_utf8_lossy(&data)))),
                None => {
                    state::checkpoint(b"one").map_err(|error| Failure::new(FailureKind::Internal, error.message))?;
                    Self::execute(Turn { text: argument.into(), ..turn })
                }
            },
            // The same, but after a restart it runs the rest again.
            "again" => {
                if turn.checkpoint.is_none() {
                    state::checkpoint(b"one").map_err(|error| Failure::new(FailureKind::Internal, error.message))?;
                }
                Self::execute(Turn { text: argument.into(), ..turn })
            }
            "until-cancelled" => {
                let slept = control::sleep(600_000);
                Err(Failure::new(FailureKind::Cancelled, format!("{slept} {}", control::cancelled())))
            }
            "span" => {
                let span = span::Span::new("probe.work", &[("kind".into(), "test".into())]);
                span.set("step", "two");
                span.event("halfway");
                Ok(Outcome::text("spanned"))
            }
            "file" => Ok(Outcome::text(format!("{:?}", std::fs::read_to_string(argument).err()))),
            "env" => Ok(Outcome::text(std::env::vars().count().to_string())),
            "data" => Ok(Outcome::new(
                FinalState::Completed,
                vec![Part::new(Content::Data(r#"{"key":"value"}"#.into()))],
            )),
            _ => Err(Failure::new(FailureKind::InvalidTurn, format!("no verb {verb}"))),
        }
    }
}

fn recurse(depth: u64) -> u64 {
    if core::hint::black_box(depth) == u64::MAX { 0 } else { recurse(depth + 1) + core::hint::black_box(1) }
}

fn emit(event: &Event) -> Result<(), Failure> {
    events::emit(event).map_err(|error| Failure::new(FailureKind::Internal, error.message))
}

fn tool(call: &str) -> String {
    let (name, arguments) = call.split_once(' ').unwrap_or((call, "{}"));
    let arguments = match arguments.parse() {
        Ok(bytes) => json!({ "text": "x".repeat(bytes) }).to_string(),
        Err(_) => arguments.to_owned(),
    };
    tools::call(name, &arguments).unwrap_or_else(|error| format!("{:?}: {}", error.kind, error.message))
}

fn upstream(error: http::Error) -> Failure {
    Failure::new(FailureKind::Upstream, format!("{:?}: {}", error.kind, error.message))
}

fn fetch(url: &str, headers: &[(&str, &str)]) -> String {
    let mut request = Request::new("GET", url);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    match request.fetch() {
        Ok(response) => format!("{} {}", response.status, String::from_utf8_lossy(&response.body)),
        Err(error) => format!("{:?}: {}", error.kind, error.message),
    }
}

talaria_guest::export!(Probe);
