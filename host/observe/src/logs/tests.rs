//! Lines are scrubbed, filters are parsed.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::{Format, InitError, Scrubbed, parse_filter};

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
    let logs = tracing_subscriber::fmt().json().with_writer(Scrubbed(move || writer.clone())).finish();
    tracing::subscriber::with_default(logs, || {
        tracing::info!(header = "Bearer abcdefghij", "called with X_TOKEN=\"abc defghij\"");
    });
    let text = String::from_utf8(lines.0.lock().expect("unpoisoned").clone()).expect("text");
    assert!(text.contains(r#""message":"called with X_TOKEN=\"[REDACTED:token]\"""#), "{text}");
    assert!(text.contains(r#""header":"Bearer [REDACTED:bearer_token]""#), "{text}");
    assert!(text.ends_with("}\n"), "{text}");
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
