//! The import `span`: spans of a guest in the host's trace. Names, keys and values are scrubbed of secrets.
//!
//! A span stays in memory while it is open, and the log repeats its attributes in each line that is written in it. So a
//! span is small, whatever the guest passes: names, keys and values are cut, and attributes beyond [`SPAN`] are left
//! out. A turn has a limited number of open spans, each charged to its budget. Further spans do nothing: a guest can
//! neither see nor handle an error here.
//!
//! Attributes and events that a guest adds to a span later are log lines. They count towards the rate limit of `log`
//! together with the span that the line repeats. In a trace they are attributes and events of the span, at most [`SPAN`] bytes
//! and [`EVENTS`] of them.

use std::fmt::Write as _;
use std::time::Duration;

use talaria_turns::{OpenStep, StepKind, StepTrace};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::{Ctx, printed};
use crate::contract::bindings::talaria::executor::span as wit;
use crate::size::{ENTRY, Size};

/// The length at which a name or a key is cut.
const MAX_NAME: usize = 128;
/// The length at which a value is cut.
const MAX_VALUE: usize = 1 << 10;
/// The size of all attributes of a span. A line that repeats them is no larger than the largest line of `log`.
const SPAN: usize = 2 << 10;
/// The number of events of a span that a trace shows.
const EVENTS: usize = 32;
/// The number of spans that a turn may have open. A trace of an agent nests some ten.
const OPEN: usize = 64;

/// A span of a guest. It ends when the guest drops it.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub struct Span {
    /// `None` if there was no room for it.
    open: Option<tracing::Span>,
    /// What the turn's timeline shows of it, for as long as it is open.
    step: Option<OpenStep>,
    /// The bytes that it adds to a log line.
    bytes: usize,
}

impl Ctx {
    /// Formats the attributes that fit, as `[("key", "value")]`.
    fn attributes(&self, attributes: &[(String, String)]) -> String {
        let mut text = String::from("[");
        for (key, value) in attributes {
            let (key, value) = (self.for_log(key, MAX_NAME), self.for_log(value, MAX_VALUE));
            let (before, comma) = (text.len(), if text.len() > 1 { ", " } else { "" });
            let _ = write!(text, "{comma}({key:?}, {value:?})");
            if text.len() >= SPAN {
                text.truncate(before);
                break;
            }
        }
        text.push(']');
        text
    }

    fn open_span(&mut self, name: &str, attributes: &[(String, String)]) -> Span {
        let closed = Span { open: None, step: None, bytes: 0 };
        if self.open_spans >= OPEN {
            return closed;
        }
        let given = attributes;
        let (name, attributes) = (self.for_log(name, MAX_NAME), self.attributes(attributes));
        let bytes = printed(&name) + printed(&attributes);
        if !self.affords(Size::of(ENTRY + bytes)) {
            return closed;
        }
        self.open_spans += 1;
        // The tracing crate needs static span names; exporters use `otel.name` instead.
        let span = tracing::info_span!(target: "guest", "guest.span", otel.name = name, %attributes);
        let step = self.timeline().map(|timeline| timeline.step(StepKind::Span, &name));
        let is_recorded = step.as_ref().is_some_and(OpenStep::is_recorded);
        if is_recorded
            && self.affords(Size::of(bytes))
            && let Some(step) = &step
        {
            step.trace(|trace, _| {
                for (key, value) in given {
                    add(trace, self.for_log(key, MAX_NAME), self.for_log(value, MAX_VALUE));
                }
            });
        }
        Span { open: Some(span), step, bytes }
    }

    /// Changes what a trace shows of a span, if there is one and the turn's budget has room for the texts.
    fn trace<const N: usize>(
        &mut self,
        span: &Resource<Span>,
        texts: [(&str, usize); N],
        note: impl FnOnce(&mut StepTrace, Duration, [String; N]),
    ) -> Result<()> {
        if !self.table.get(span)?.step.as_ref().is_some_and(OpenStep::is_recorded) {
            return Ok(());
        }
        let texts = texts.map(|(text, most)| self.for_log(text, most));
        let bytes = texts.iter().map(String::len).sum::<usize>();
        if self.affords(Size::of(ENTRY + bytes))
            && let Some(step) = &self.table.get(span)?.step
        {
            step.trace(|trace, now| note(trace, now, texts));
        }
        Ok(())
    }
}

/// Adds an attribute to what a trace shows of a span, or replaces the one of that key, as far as it fits.
fn add(trace: &mut StepTrace, key: String, value: String) {
    trace.attributes.retain(|(known, _)| **known != *key);
    let taken: usize = trace.attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
    if !key.is_empty() && taken + key.len() + value.len() <= SPAN {
        trace.attributes.push((key.into(), value.into()));
    }
}

impl wit::Host for Ctx {}

impl wit::HostSpan for Ctx {
    fn new(&mut self, name: String, attributes: Vec<(String, String)>) -> Result<Resource<Span>> {
        let span = self.open_span(&name, &attributes);
        Ok(self.table.push(span)?)
    }

    fn set(&mut self, span: Resource<Span>, key: String, value: String) -> Result<()> {
        self.trace(&span, [(&key, MAX_NAME), (&value, MAX_VALUE)], |trace, _, [key, value]| {
            add(trace, key, value);
        })?;
        let Span { open, bytes, .. } = self.table.get(&span)?;
        let (Some(span), bytes) = (open.clone(), *bytes) else { return Ok(()) };
        self.line(bytes, [(&key, MAX_NAME), (&value, MAX_VALUE)], |_, [key, value]| {
            tracing::info!(target: "guest", parent: &span, key, value, "span attribute");
        });
        Ok(())
    }

    fn event(&mut self, span: Resource<Span>, name: String) -> Result<()> {
        self.trace(&span, [(&name, MAX_NAME)], |trace, now, [name]| {
            if trace.events.len() < EVENTS {
                trace.events.push((now, name.into()));
            }
        })?;
        let Span { open, bytes, .. } = self.table.get(&span)?;
        let (Some(span), bytes) = (open.clone(), *bytes) else { return Ok(()) };
        self.line(bytes, [(&name, MAX_NAME)], |_, [name]| {
            tracing::info!(target: "guest", parent: &span, name, "span event");
        });
        Ok(())
    }

    fn drop(&mut self, span: Resource<Span>) -> Result<()> {
        if self.table.delete(span)?.open.is_some() {
            self.open_spans = self.open_spans.saturating_sub(1);
        }
        Ok(())
    }
}
