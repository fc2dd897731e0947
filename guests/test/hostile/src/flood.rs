//! Attacks on what the host stores and logs: many small things, or few large ones.

use talaria_guest::events::{self, Artifact, Custom, Event, ToolProgress, ToolState};
use talaria_guest::{Content, FinalState, Outcome, Part, callback, log, span, state};

/// Runs `VERB NUMBER ARGUMENT`. Returns `None` for a verb that it does not know.
pub(crate) fn run(verb: &str, number: usize, argument: &str) -> Option<String> {
    let size: usize = argument.parse().unwrap_or(0);
    let long = || "x".repeat(size);
    Some(match verb {
        // Those that return how many of NUMBER were accepted, and why the next one was not.
        "status" => accepted(number, || events::emit(&Event::Status(argument.into())).map_err(reason)),
        "files" => {
            let file = artifact(vec![Part {
                filename: Some(long()),
                media_type: Some(long()),
                ..Part::new(Content::Bytes(Vec::new()))
            }]);
            accepted(number, || events::emit(&file).map_err(reason))
        }
        "parts" => {
            let empty = artifact((0..size).map(|_| Part::text("")).collect());
            accepted(number, || events::emit(&empty).map_err(reason))
        }
        "zeros" => {
            let value = format!("[{}0]", "0,".repeat(size));
            let event = Event::Custom(Custom { name: "zeros".into(), value });
            accepted(number, || events::emit(&event).map_err(reason))
        }
        "questions" => {
            let question = [Part::text(long())];
            accepted(number, || events::pose(&question).map(drop).map_err(reason))
        }
        "checkpoints" => {
            let data = vec![1; size];
            accepted(number, || state::checkpoint(&data).map_err(|error| error.message))
        }
        "rewrites" => {
            let value = vec![1; size];
            accepted(number, || state::set("k", Some(&value)).map_err(|error| error.message))
        }
        "expectations" => accepted(number, {
            let mut next = 0;
            move || {
                next += 1;
                callback::expect(&format!("m{next}")).map(drop).map_err(|error| error.message)
            }
        }),
        // NUMBER open spans, each with so many bytes in an attribute, and an event in each.
        "spans" => {
            let attributes = [("key".to_owned(), long())];
            let open: Vec<span::Span> =
                (0..number).map(|_| span::Span::new("attack.span", &attributes)).collect();
            open.iter().for_each(|span| span.event("still open"));
            open.len().to_string()
        }
        // A span with a name of so many bytes, and NUMBER lines in it.
        "span-name" => {
            let span = span::Span::new(&long(), &[]);
            (0..number).for_each(|_| span.event("line"));
            "named".into()
        }
        // The argument in every string of a log line and of a span.
        "forge" => {
            let argument = argument.replace("LF", "\n").replace("CR", "\r").replace("ESC", "\u{1b}");
            log::write(log::Level::Info, &argument, Some(&argument));
            let span = span::Span::new(&argument, &[(argument.clone(), argument.clone())]);
            span.set(&argument, &argument);
            span.event(&argument);
            "forged".into()
        }
        "scrub" => {
            let text = long();
            loop {
                core::hint::black_box(events::scrub(&text));
            }
        }
        // Whether the host tells anything about the argument.
        "guess" => (events::scrub(argument) != argument).to_string(),
        // Events that are rejected, again and again.
        "rejected" => {
            let file = artifact(vec![Part { filename: Some(long()), ..Part::text("") }]);
            loop {
                let _ = core::hint::black_box(events::emit(&file));
            }
        }
        // A JSON value that is parsed again and again.
        "parsed" => {
            let value = format!("[{}x]", "0,".repeat(size));
            let event = Event::Custom(Custom { name: "zeros".into(), value });
            loop {
                let _ = core::hint::black_box(events::emit(&event));
            }
        }
        // The argument in every string of an event of each kind.
        "everywhere" => {
            let text = || argument.to_owned();
            let json = || format!("{{\"{argument}\":[\"{argument}\"]}}");
            let part = |content| Part {
                media_type: Some(text()),
                filename: Some(text()),
                metadata: Some(json()),
                ..Part::new(content)
            };
            let contents = [
                Content::Text(text()),
                Content::Uri(text()),
                Content::Data(json()),
                Content::Bytes(argument.as_bytes().to_vec()),
            ];
            let said = [
                Event::Status(text()),
                Event::Artifact(Artifact {
                    id: text(),
                    name: Some(text()),
                    description: Some(text()),
                    parts: contents.into_iter().map(part).collect(),
                    append: false,
                    last: true,
                    metadata: Some(json()),
                }),
                Event::ToolProgress(ToolProgress {
                    id: text(),
                    name: text(),
                    state: ToolState::Started,
                    label: Some(text()),
                    metadata: Some(json()),
                }),
                Event::Custom(Custom { name: text(), value: json() }),
                Event::TextDelta(text()),
            ];
            said.iter().filter(|event| events::emit(event).is_ok()).count().to_string()
        }
        // The pieces of the argument, separated by `|`, each appended to one of NUMBER artifacts in turn.
        "pieces" => {
            let pieces: Vec<&str> = argument.split('|').collect();
            for (at, piece) in pieces.iter().enumerate() {
                for id in 0..number {
                    let piece = Event::Artifact(Artifact {
                        id: format!("a{id}"),
                        name: None,
                        description: None,
                        parts: vec![Part::text(*piece)],
                        append: at > 0,
                        last: at + 1 == pieces.len(),
                        metadata: None,
                    });
                    if let Err(error) = events::emit(&piece) {
                        return Some(error.message);
                    }
                }
            }
            "emitted".into()
        }
        _ => return None,
    })
}

/// Outcomes that are too large, or become so.
pub(crate) fn outcome(verb: &str, number: usize) -> Option<Outcome> {
    let part = match verb {
        "zeros-outcome" => Part::new(Content::Data(format!("[{}0]", "0,".repeat(number)))),
        "file-outcome" => Part { filename: Some("x".repeat(number)), ..Part::text("") },
        _ => return None,
    };
    Some(Outcome::new(FinalState::Completed, vec![part]))
}

fn accepted(most: usize, mut attempt: impl FnMut() -> Result<(), String>) -> String {
    let mut count = 0;
    while count < most {
        if let Err(why) = attempt() {
            return format!("{count}: {why}");
        }
        count += 1;
    }
    format!("{count}: all")
}

fn reason(error: events::Error) -> String {
    error.message
}

fn artifact(parts: Vec<Part>) -> Event {
    Event::Artifact(Artifact {
        id: "a".into(),
        name: None,
        description: None,
        parts,
        append: true,
        last: false,
        metadata: None,
    })
}
