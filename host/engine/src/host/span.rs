//! The import `span`: spans of a guest in the host's trace. The values of attributes are scrubbed of secrets.
//!
//! Attributes and events that a guest adds to a span later are log lines, and count towards the rate limit of `log`.

use wasmtime::Result;
use wasmtime::component::Resource;

use super::Ctx;
use crate::contract::bindings::talaria::executor::span as wit;

/// A span of a guest. It ends when the guest drops it.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub struct Span(tracing::Span);

impl Ctx {
    fn redacted(&self, text: String) -> String {
        self.shared().map_or_else(String::new, |shared| shared.replies.redactor().all(&text).into_owned())
    }
}

impl wit::Host for Ctx {}

impl wit::HostSpan for Ctx {
    fn new(&mut self, name: String, attributes: Vec<(String, String)>) -> Result<Resource<Span>> {
        let attributes: Vec<(String, String)> =
            attributes.into_iter().map(|(key, value)| (key, self.redacted(value))).collect();
        // The tracing crate needs static span names; exporters use `otel.name` instead.
        let span =
            tracing::info_span!(target: "guest", "guest.span", otel.name = name, attributes = ?attributes);
        Ok(self.table.push(Span(span))?)
    }

    fn set(&mut self, span: Resource<Span>, key: String, value: String) -> Result<()> {
        if self.may_log(key.len() + value.len()) {
            let value = self.redacted(value);
            let span = &self.table.get(&span)?.0;
            tracing::info!(target: "guest", parent: span, key, value, "span attribute");
        }
        Ok(())
    }

    fn event(&mut self, span: Resource<Span>, name: String) -> Result<()> {
        if self.may_log(name.len()) {
            let span = &self.table.get(&span)?.0;
            tracing::info!(target: "guest", parent: span, name, "span event");
        }
        Ok(())
    }

    fn drop(&mut self, span: Resource<Span>) -> Result<()> {
        self.table.delete(span)?;
        Ok(())
    }
}
