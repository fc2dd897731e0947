//! The place in a trace that a caller sends: the first line is `traceparent`, each further one a `tracestate`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use talaria_turns::TraceContext;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let Some(read) = TraceContext::parse(lines.next().unwrap_or_default(), lines) else { return };
    // What was read is passed on in the exact form, and read again.
    let (parent, state) = (read.traceparent(read.span), read.state.as_deref());
    assert_eq!(parent.len(), 55);
    assert!(state.is_none_or(|state| (1..=512).contains(&state.len())));
    assert_eq!(TraceContext::parse(&parent, state), Some(read.clone()));
    assert_eq!(read.child().trace, read.trace);
});
