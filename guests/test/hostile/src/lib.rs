//! Attacks the host as its prompt says, `VERB [ARGUMENT]`, for the host's tests. Each verb attacks one promise.

mod flood;

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use talaria_guest::events::{self, Event};
use talaria_guest::{
    Description, Executor, Failure, FailureKind, Line, Needs, Outcome, Page, Query, Request, Transcript,
    Turn, control, http, log, state,
};

struct Hostile;

impl Executor for Hostile {
    fn describe() -> Description {
        Description {
            settings_schema:
                r#"{"properties":{"base_url":{"type":"string","default":"http://127.0.0.1:9"}}}"#.into(),
            needs: Needs {
                egress: vec!["* {setting:base_url}/*".into()],
                secrets: vec!["PROBE_KEY".into()],
                callbacks: true,
            },
            streaming: true,
            ..Description::new("hostile", env!("CARGO_PKG_VERSION"), "Attacks the host")
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let (verb, argument) = turn.text.split_once(' ').unwrap_or((&turn.text, ""));
        let (first, second) = argument.split_once(' ').unwrap_or((argument, ""));
        let number = first.parse().unwrap_or(0_usize);
        if verb == "fail" {
            return Err(Failure::new(FailureKind::Internal, "x".repeat(number)));
        }
        if let Some(outcome) = flood::outcome(verb, number) {
            return Ok(outcome);
        }
        Ok(Outcome::text(match verb {
            "spin" => loop {
                core::hint::black_box(0);
            },
            // Returns how many of that many events were accepted.
            "emit" => {
                let event = Event::TextDelta("x".repeat(second.parse().unwrap_or(1)));
                (0..number).take_while(|_| events::emit(&event).is_ok()).count().to_string()
            }
            "panic-halfway" => {
                events::emit(&Event::TextDelta("half of it, ".into())).map_err(over)?;
                core::arch::wasm32::unreachable()
            }
            "panic" => {
                #[expect(clippy::panic, reason = "that is what was asked for")]
                {
                    panic!("{first}")
                }
            }
            "log" => {
                for _ in 0..number {
                    log::write(log::Level::Warn, "x", None);
                }
                "logged".into()
            }
            // Prints `second` that many times to its standard output, and once, without an end of line, to its standard error.
            "stdout" => {
                for _ in 0..number {
                    let _ = writeln!(io::stdout(), "{second}");
                }
                let _ = write!(io::stderr(), "{second}");
                "printed".into()
            }
            "headers" => {
                let mut request = Request::new("GET", second);
                for header in 0..number {
                    request = request.header(&format!("x-{header}"), "x".repeat(100));
                }
                answered(request.fetch())
            }
            "call" => answered(Request::new(first, second).fetch()),
            // Follows a redirect.
            "follow" => {
                let response = Request::new("GET", first).fetch().map_err(failed)?;
                let location = response.headers.iter().find(|(name, _)| name == "location");
                match location {
                    Some((_, location)) => answered(Request::new("GET", location.as_str()).fetch()),
                    None => format!("{} without a location", response.status),
                }
            }
            "upgrade" => {
                let request = Request::new("GET", first).header("upgrade", "h2c");
                answered(request.header("connection", "upgrade, http2-settings").fetch())
            }
            "secret-in-url" => {
                answered(Request::new("GET", format!("{first}?key={{secret:PROBE_KEY}}")).fetch())
            }
            "secret-in-body" => {
                answered(Request::new("POST", first).body("text/plain", "key={secret:PROBE_KEY}").fetch())
            }
            "secret-in-header" => {
                answered(Request::new("GET", first).header("x-key", "{secret:PROBE_KEY}").fetch())
            }
            // Returns how many calls were open at once.
            "open" => {
                let mut open = Vec::new();
                let error = loop {
                    match Request::new("GET", second).open() {
                        Ok(exchange) => open.push(exchange),
                        Err(error) => break error.message,
                    }
                    if open.len() == number {
                        break "no bound".into();
                    }
                };
                format!("{}: {error}", open.len())
            }
            // Holds a response open for ever.
            "hold" => {
                let exchange = Request::new("GET", first).open().map_err(failed)?;
                let read = exchange.read(1 << 20).map_err(failed)?;
                control::sleep(u32::MAX);
                format!("{read:?}")
            }
            // Returns how many calls were made, one after the other.
            "calls" => {
                let mut made = 0;
                let error = loop {
                    match Request::new("GET", second).fetch() {
                        Ok(_) => made += 1,
                        Err(error) => break error.message,
                    }
                    if made == number {
                        break "no bound".into();
                    }
                };
                format!("{made}: {error}")
            }
            "send" => answered(Request::new("POST", second).body("text/plain", vec![b'x'; number]).fetch()),
            // Returns how many values of that many bytes were stored.
            "remember" => {
                let value = vec![1; number];
                let mut kept = 0;
                while state::set(&format!("k{kept}"), Some(&value)).is_ok() && kept < 10_000 {
                    kept += 1;
                }
                kept.to_string()
            }
            "recall" => format!("{:?}", state::get(argument).ok().flatten()),
            // Returns the nanoseconds of the clock below a millisecond.
            "clock" => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (now.subsec_nanos() % 1_000_000).to_string()
            }
            "read" => std::fs::read_to_string(argument).unwrap_or_else(|error| format!("error: {error}")),
            "write" => std::fs::write(argument, "x")
                .map_or_else(|error| format!("error: {error}"), |()| "written".into()),
            // A hash table needs random numbers.
            "hash" => {
                use std::hash::{BuildHasher as _, RandomState};
                RandomState::new().hash_one(1).to_string()
            }
            _ => match flood::run(verb, number, second) {
                Some(said) => said,
                None => return Err(Failure::new(FailureKind::InvalidTurn, format!("no verb {verb}"))),
            },
        }))
    }
}

fn answered(response: Result<http::Response, http::Error>) -> String {
    match response {
        Ok(response) => format!("{} {}", response.status, String::from_utf8_lossy(&response.body)),
        Err(error) => format!("{:?}: {}", error.kind, error.message),
    }
}

fn failed(error: http::Error) -> Failure {
    Failure::new(FailureKind::Upstream, format!("{:?}: {}", error.kind, error.message))
}

fn over(error: events::Error) -> Failure {
    Failure::new(FailureKind::Cancelled, error.message)
}

/// Attacks as the setting `transcript` says.
impl Transcript for Hostile {
    fn read(query: Query) -> Result<Page, Failure> {
        let settings: serde_json::Value = talaria_guest::settings(&query.settings)?;
        let attack = settings.get("transcript").and_then(|value| value.as_str()).unwrap_or_default();
        let line = |number: u32| Line {
            number,
            kind: "user".into(),
            at_ms: Some(0.0),
            session: "s".into(),
            text: "x".into(),
            metadata: None,
        };
        let first = query.since + 1;
        let lines = match attack {
            "spin" => loop {
                core::hint::black_box(0);
            },
            "backwards" => vec![line(first + 1), line(first)],
            "before" => vec![line(query.since.saturating_sub(1))],
            "many" => (0..=query.limit).map(|more| line(first + more)).collect(),
            "no-json" => vec![Line { metadata: Some("{".into()), ..line(first) }],
            "no-object" => vec![Line { metadata: Some("[1]".into()), ..line(first) }],
            "huge" => vec![Line { text: "x".repeat(64 << 20), ..line(first) }],
            "times" => {
                let times = [f64::NAN, f64::INFINITY, -1.0, 1e300];
                (first..).zip(times).map(|(number, at)| Line { at_ms: Some(at), ..line(number) }).collect()
            }
            // Calls functions that need a turn, although there is none.
            "turn" => {
                let said = [
                    events::emit(&Event::TextDelta("x".into())).is_err(),
                    state::get("key").is_err(),
                    state::checkpoint(b"x").is_err(),
                ];
                vec![Line { text: format!("{said:?}"), ..line(first) }]
            }
            _ => vec![line(first)],
        };
        Ok(Page { lines, more: false })
    }
}

talaria_guest::export!(Hostile);
talaria_guest::export_transcript!(Hostile);
talaria_guest::without_wasi!();
