//! What `talaria send` makes of the words of a hostile server: its card, its answers, and text for a terminal.
//!
//! The modules of the binary are taken in as they are, since the binary itself brings the engine along.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the binary uses what the target does not")]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use talaria_a2a::fuzz::{Dialect, write_task};
use talaria_turns::{Event, Part, State, Task};

use crate::printable::Printable;

#[path = "../../../../../host/talaria/src/output/printable.rs"]
mod printable;
mod send;

/// What the card's module needs of the command line.
mod cli {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Protocol {
        V0_3,
        V1_0,
    }

    impl Protocol {
        pub(crate) fn as_str(self) -> &'static str {
            match self {
                Self::V0_3 => "0.3",
                Self::V1_0 => "1.0",
            }
        }
    }
}

fuzz_target!(|text: &str| {
    if let Ok(raw) = serde_json::from_str::<Value>(text) {
        send::check_answer(&raw);
        send::check_card(&raw);
    }
    let (one, other) = text.split_once('\n').unwrap_or((text, text));
    send::check_origins(one, other);
    send::check_transcript(text);
    send::check_line(text);

    let printed = Printable(text).to_string();
    let is_control = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    assert!(!printed.contains(is_control), "a terminal would obey {printed:?}");
    assert!(text.contains(is_control) || printed == text);

    // What our own server writes is understood.
    for state in [State::Working, State::InputRequired, State::Completed, State::Failed] {
        let mut task = Task::new("t".parse().expect("an id"), "c".parse().expect("an id"));
        task.apply(&Event::said(state, vec![Part::text(text)])).expect("a legal move");
        for dialect in [Dialect::V1, Dialect::V03] {
            let written = write_task(dialect, &Arc::new(task.clone())).expect("a task can be written");
            let written: Value = serde_json::from_str(&written).expect("JSON");
            let result =
                if dialect == Dialect::V1 { serde_json::json!({ "task": written }) } else { written };
            let (id, said, words) = send::check_answer(&result).expect("an answer");
            assert_eq!((id.as_deref(), said), (Some("t"), Some(state.to_string())));
            assert_eq!(words, text);
        }
    }
});
