//! Calls every function of the contract once, and answers with what it saw.

use serde_json::{Value, json};
use talaria_guest::callback::{expect, expect_in};
use talaria_guest::events::{Artifact, Custom, Event, ToolProgress, ToolState, ask, emit, pose, scrub};
use talaria_guest::{
    Content, Description, Executor, Failure, FailureKind, FinalState, Message, Needs, Outcome, Part, Request,
    SetupContext, Turn, Usage, callback, config, control, http, log, span, state, tools,
};

struct Witness;

impl Executor for Witness {
    fn describe() -> Description {
        Description {
            display_name: "Witness".into(),
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "url": { "type": "string" },
                    "greeting": { "type": "string", "default": "hello" },
                },
                "required": ["url"],
            })
            .to_string(),
            idle_timeout_seconds: Some(30),
            streaming: true,
            needs: Needs {
                egress: vec!["GET {setting:url}/*".into()],
                secrets: vec!["WITNESS_KEY".into()],
                callbacks: true,
            },
            metadata: Some(json!({ "talaria/input-modes": ["text/*"] }).to_string()),
            ..Description::new("witness-rust", "0.1.0", "Calls every function of the contract once")
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Value = talaria_guest::settings(&context.settings)?;
        match settings.get("url") {
            Some(_) => Ok(()),
            None => Err(Failure::new(FailureKind::InvalidSettings, "url is missing")),
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        match turn.text.as_str() {
            "fail" => Err(Failure {
                kind: FailureKind::Upstream,
                message: "asked to fail".into(),
                retryable: true,
                details: Some(json!({ "why": "asked" }).to_string()),
            }),
            "stream" => {
                for piece in ["one ", "two"] {
                    emit(&Event::TextDelta(piece.into())).map_err(|error| failed(error.message))?;
                }
                Ok(Outcome::new(FinalState::Completed, Vec::new()))
            }
            _ => look(&turn),
        }
    }

    fn cancel(_: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        let bytes = checkpoint.unwrap_or_default().len();
        log::write(log::Level::Warn, &format!("cancelled after {bytes} bytes"), None);
        Ok(())
    }
}

fn look(turn: &Turn) -> Result<Outcome, Failure> {
    let settings: Value = talaria_guest::settings(&turn.settings)?;
    let seen = json!({
        "http": calls(settings["url"].as_str().unwrap_or_default()).map_err(|error| failed(error.message))?,
        "callback": callbacks().map_err(|error| failed(error.message))?,
        "events": happenings().map_err(|error| failed(error.message))?,
        "state": remembered().map_err(|error| failed(error.message))?,
        "control": [
            control::remaining_ms() > 0, control::cancelled(), control::sleep(1), control::session("chat-id"),
        ],
        "config": [config::get("greeting"), config::has_secret("WITNESS_KEY")],
        "tools": [
            tools::list().into_iter().map(|tool| tool.name).collect::<Vec<_>>(),
            tools::call("echo", r#"{"text":"hi"}"#).map_err(|error| failed(error.message))?,
        ],
    });
    log::write(log::Level::Info, "witnessed", Some(r#"{"functions":"all"}"#));
    let opened = span::Span::new("witness.look", &[("language".into(), "rust".into())]);
    opened.set("seen", "all");
    opened.event("done");
    drop(opened);
    Ok(Outcome {
        usage: Some(Usage { input_tokens: 1, output_tokens: 2 }),
        metadata: Some(json!({ "witness": true }).to_string()),
        ..Outcome::new(FinalState::Completed, vec![Part::new(Content::Data(seen.to_string()))])
    })
}

fn calls(url: &str) -> Result<Value, http::Error> {
    let fetch = Request::new("GET", format!("{url}/fetch")).header("x-witness", "{secret:WITNESS_KEY}");
    let response = fetch.timeout_ms(5_000).max_bytes(1_000).fetch()?;
    let events = Request::new("GET", format!("{url}/events")).open()?;
    let typed = events.headers().iter().any(|(name, _)| name == "content-type");
    let (status, waiting) = (events.status(), events.await_event(5_000));
    let event = events.next_event()?.map(|event| event.data);
    drop(events);
    let raw = Request::new("GET", format!("{url}/raw")).open()?.read(100)?.unwrap_or_default();
    let denied = match Request::new("GET", "http://127.0.0.1:9/denied").fetch() {
        Err(http::Error { kind: http::ErrorKind::Denied, .. }) => "denied",
        _ => "something else",
    };
    Ok(json!([response.status, text(response.body), status, typed, waiting, event, text(raw), denied]))
}

fn callbacks() -> Result<Value, callback::Error> {
    let pending = expect("message-1")?;
    let waited = match pending.wait(Some(1)) {
        Err(callback::Error { kind: callback::ErrorKind::TimedOut, .. }) => "timed-out",
        _ => "something else",
    };
    let (url, overtakes) = (pending.reply_url(), pending.overtakes());
    drop(pending);
    let in_chat = expect_in("chat", "message-2", Some(1_000))?.reply_url();
    Ok(json!([url.starts_with("http"), overtakes, waited, in_chat.starts_with("http")]))
}

fn happenings() -> Result<Value, talaria_guest::events::Error> {
    emit(&Event::Status("working".into()))?;
    emit(&Event::Artifact(Artifact {
        id: "a1".into(),
        name: Some("name".into()),
        description: None,
        parts: vec![Part::text("a piece")],
        append: false,
        last: true,
        metadata: None,
    }))?;
    emit(&Event::ToolProgress(ToolProgress {
        id: "t1".into(),
        name: "tool".into(),
        state: ToolState::Started,
        label: None,
        metadata: None,
    }))?;
    emit(&Event::Custom(Custom { name: "witness".into(), value: r#"{"n":1}"#.into() }))?;
    let asked = said(&ask(&[Part::text("first?")])?);
    let question = pose(&[Part::text("second?")])?;
    let posed = loop {
        if let Some(answer) = question.wait(1_000)? {
            break said(&answer);
        }
    };
    Ok(json!([scrub("plain"), asked, posed]))
}

fn remembered() -> Result<Value, state::Error> {
    let before = state::get("count")?;
    state::set("count", Some(b"1"))?;
    let after = state::get("count")?.unwrap_or_default();
    state::set("count", None)?;
    state::checkpoint(b"half")?;
    let gone = state::get("count")?.is_none();
    Ok(json!([before.is_none(), text(after), gone, state::history(5)?.len() <= 5]))
}

fn said(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn failed(message: String) -> Failure {
    Failure::new(FailureKind::Internal, message)
}

talaria_guest::export!(Witness);
