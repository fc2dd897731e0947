//! Lines are scrubbed, filters are parsed.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::{Format, InitError, dispatch, parse_filter};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_secret_in_an_event_does_not_reach_the_log() {
    let lines = Lines::default();
    let writer = lines.clone();
    let (logs, _) = dispatch(Format::Json, "info", move || writer.clone(), false).expect("a filter");
    tracing::dispatcher::with_default(&logs, || {
        tracing::info!(header = "Bearer abcdefghij", "called with X_TOKEN=\"abc defghij\"");
    });
    let text = String::from_utf8(lines.0.lock().expect("unpoisoned").clone()).expect("text");
    assert!(text.contains(r#""message":"called with X_TOKEN=\"[REDACTED:token]\"""#), "{text}");
    assert!(text.contains(r#""header":"Bearer [REDACTED:bearer_token]""#), "{text}");
    assert!(text.ends_with("}\n"), "{text}");
}

/// What is logged as text when `FORGED` is in a message, in fields of each kind, and in a span.
fn logged(is_terminal: bool) -> String {
    const FORGED: &str = "a\r\n2026 ERROR forged\u{2028}\u{85}\u{1b}[2J\u{8}\u{7f}b";
    let lines = Lines::default();
    let writer = lines.clone();
    let (logs, _) = dispatch(Format::Text, "info", move || writer.clone(), is_terminal).expect("a filter");
    tracing::dispatcher::with_default(&logs, || {
        let span = tracing::info_span!("span", name = FORGED, shown = %FORGED);
        span.in_scope(|| tracing::warn!(text = FORGED, shown = %FORGED, debug = ?FORGED, "{FORGED}"));
        tracing::info!("next");
    });
    let text = lines.0.lock().expect("unpoisoned").clone();
    String::from_utf8(text).expect("text")
}

#[test]
fn an_event_is_one_line_whatever_is_in_its_texts() {
    for is_terminal in [true, false] {
        let text = logged(is_terminal);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        let controls = text.chars().filter(|char| char.is_control() && !"\n\u{1b}".contains(*char));
        assert_eq!(controls.count() + text.matches('\u{2028}').count(), 0, "{text:?}");
        assert!(!text.contains("\u{1b}[2J") && text.contains("\\u{1b}[2J"), "{text:?}");
        assert_eq!(text.contains("\u{1b}[33m"), is_terminal, "{text:?}");
        assert!(text.ends_with("next\n"), "{text:?}");
    }
}

#[test]
fn a_bad_filter_or_format_is_named_in_the_error() {
    assert!(parse_filter("info,talaria=debug").is_ok());
    let error = parse_filter("talaria=loud").expect_err("no such level");
    assert!(matches!(&error, InitError::Filter { filter, .. } if filter == "talaria=loud"));
    assert!(error.to_string().contains("write one like info,talaria=debug"), "{error}");
    assert_eq!("json".parse(), Ok(Format::Json));
    let error = "yaml".parse::<Format>().expect_err("no such format");
    assert_eq!(error.to_string(), "unknown log format \"yaml\"; write text or json");
}

#[test]
fn levels_by_target_can_be_replaced_while_it_logs() {
    let lines = Lines::default();
    let writer = lines.clone();
    let (logs, targets) = dispatch(Format::Text, "info", move || writer.clone(), false).expect("a filter");
    let targets = targets.expect("levels by target");
    tracing::dispatcher::with_default(&logs, || {
        for filter in ["info", "info,adjusted=debug", "error"] {
            targets.store(Arc::new(filter.parse().expect("targets")));
            tracing::callsite::rebuild_interest_cache();
            tracing::debug!(target: "adjusted", filter, "detail");
            tracing::info!(filter, "news");
        }
    });
    let text = String::from_utf8(lines.0.lock().expect("unpoisoned").clone()).expect("text");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("detail"), "{text}");
    let (_, by_spans) = dispatch(Format::Text, "info,[turn]=debug", io::sink, false).expect("a filter");
    assert!(by_spans.is_none(), "a filter by spans takes a lock, so it is not made for all");
}
