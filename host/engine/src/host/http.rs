//! The import `http`: outbound calls, all through the egress.
//!
//! `outbound` limits the calls of a turn. A pending call fails when the turn is cancelled.

use std::time::Duration;

use bytes::Bytes;
use talaria_egress::{Error, ErrorKind, Request};
use talaria_turns::{Scope, StepKind};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::outbound::{OpenCall, call_name};
use super::{Ctx, Purpose, unless_cancelled};
use crate::contract::bindings::talaria::executor::http as wit;

/// A response whose body is still being received. Dropping it closes the connection.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub struct Exchange(talaria_egress::Exchange, OpenCall);

impl Ctx {
    /// Counts a request against the limits of the turn, and limits its response to what the turn may still receive.
    fn admit(&mut self, request: wit::Request) -> Result<(OpenCall, Request), wit::Error> {
        let shared = self.shared().cloned().ok_or_else(|| wit::Error {
            kind: wit::ErrorKind::Unsupported,
            message: "describe has no egress".into(),
        })?;
        let name = call_name(&request.method, &request.url);
        let open_call =
            self.outbound.admit(&shared, StepKind::Call, &name).map_err(|error| failed(&error))?;
        open_call.send(request.body.len()).map_err(|error| failed(&error))?;
        let mut request = convert(request);
        open_call.propagate(&mut request.headers);
        request.max_bytes = Some(request.max_bytes.unwrap_or(usize::MAX).min(open_call.left()));
        Ok((open_call, request))
    }
}

impl Ctx {
    /// The URL of a call that counts for the verdict of a probe; `None` in a turn.
    fn judged(&self, request: &wit::Request) -> Option<String> {
        matches!(self.purpose, Purpose::Probe(_)).then(|| request.url.clone())
    }

    fn judge(&self, url: Option<String>, status: Result<u16, &wit::Error>) {
        match (url, status) {
            (Some(url), Ok(status)) => self.outbound.verdict.answered(&url, status),
            (Some(_), Err(error)) if error.kind == wit::ErrorKind::Denied => {
                self.outbound.verdict.denied(&error.message);
            }
            _ => {}
        }
    }
}

impl wit::Host for Ctx {
    async fn fetch(&mut self, request: wit::Request) -> Result<Result<wit::Response, wit::Error>> {
        let judged = self.judged(&request);
        let (open_call, request) = match self.admit(request) {
            Ok(admitted) => admitted,
            Err(error) => return Ok(Err(error)),
        };
        let response = self.calls.begin(move || async move {
            let response = open_call.shared.egress.fetch(&open_call.shared.access, request).await;
            let response = response.inspect_err(|error| open_call.failed(error))?;
            open_call.answered(response.status);
            open_call.explained(response.status, &response.body);
            open_call.receive(response.body.len())?;
            Ok(response)
        });
        let response = guarded(self.scope(), response).await;
        self.judge(judged, response.as_ref().map(|response| response.status));
        Ok(response.map(|response| wit::Response {
            status: response.status,
            headers: response.headers,
            body: response.body.into(),
        }))
    }

    async fn open(&mut self, request: wit::Request) -> Result<Result<Resource<Exchange>, wit::Error>> {
        let judged = self.judged(&request);
        let (open_call, request) = match self.admit(request) {
            Ok(admitted) => admitted,
            Err(error) => return Ok(Err(error)),
        };
        let exchange = self.calls.begin(move || async move {
            let exchange = open_call.shared.egress.open(&open_call.shared.access, request).await;
            let exchange = exchange.inspect_err(|error| open_call.failed(error))?;
            open_call.answered(exchange.status());
            Ok(Exchange(exchange, open_call))
        });
        let exchange = guarded(self.scope(), exchange).await;
        self.judge(judged, exchange.as_ref().map(|exchange| exchange.0.status()));
        match exchange {
            Ok(exchange) => Ok(Ok(self.table.push(exchange)?)),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl wit::HostExchange for Ctx {
    async fn status(&mut self, exchange: Resource<Exchange>) -> Result<u16> {
        Ok(self.table.get(&exchange)?.0.status())
    }

    async fn headers(&mut self, exchange: Resource<Exchange>) -> Result<Vec<wit::Header>> {
        Ok(self.table.get(&exchange)?.0.headers().to_vec())
    }

    async fn read(
        &mut self,
        exchange: Resource<Exchange>,
        max: u32,
    ) -> Result<Result<Option<Vec<u8>>, wit::Error>> {
        let scope = self.purpose.scope();
        let exchange = self.table.get_mut(&exchange)?;
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let Exchange(exchange, open_call) = exchange;
        let read = async {
            let piece = exchange.read(max).await.inspect_err(|error| open_call.failed(error))?;
            open_call.explained(exchange.status(), piece.as_deref().unwrap_or_default());
            open_call.receive(piece.as_ref().map_or(0, Bytes::len))?;
            Ok(piece)
        };
        let read = guarded(scope, read).await;
        let bytes = read.as_ref().ok().and_then(Option::as_ref).map(|bytes| bytes.len());
        tracing::trace!(target: "import", max, bytes, "http.read");
        Ok(read.map(|bytes| bytes.map(Into::into)))
    }

    async fn next_event(
        &mut self,
        exchange: Resource<Exchange>,
    ) -> Result<Result<Option<wit::SseEvent>, wit::Error>> {
        let scope = self.purpose.scope();
        let exchange = self.table.get_mut(&exchange)?;
        let Exchange(exchange, open_call) = exchange;
        let next = async {
            let event = exchange.next_event().await.inspect_err(|error| open_call.failed(error))?;
            open_call.receive(event.as_ref().map_or(0, |event| event.data.len()))?;
            Ok(event)
        };
        let next = guarded(scope, next).await;
        let bytes = next.as_ref().ok().and_then(Option::as_ref).map(|event| event.data.len());
        tracing::trace!(target: "import", bytes, "http.next-event");
        Ok(next.map(|event| {
            event.map(|event| wit::SseEvent { event: event.event, data: event.data, id: event.id })
        }))
    }

    async fn await_event(&mut self, exchange: Resource<Exchange>, timeout_ms: u32) -> Result<bool> {
        let scope = self.purpose.scope();
        let exchange = self.table.get_mut(&exchange)?;
        let limit = Duration::from_millis(timeout_ms.into());
        // In a cancelled turn return true at once: the next read then fails as cancelled.
        Ok(unless_cancelled(scope, exchange.0.await_event(limit)).await.unwrap_or(true))
    }

    async fn drop(&mut self, exchange: Resource<Exchange>) -> Result<()> {
        self.table.delete(exchange)?;
        Ok(())
    }
}

fn convert(request: wit::Request) -> Request {
    Request {
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: Bytes::from(request.body),
        timeout: request.timeout_ms.map(|ms| Duration::from_millis(ms.into())),
        max_bytes: request.max_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
    }
}

/// Awaits `call`, and fails if the turn is cancelled meanwhile.
async fn guarded<T>(
    scope: Option<&Scope>,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, wit::Error> {
    match unless_cancelled(scope, call).await {
        Some(result) => result.map_err(|error| failed(&error)),
        None => Err(wit::Error { kind: wit::ErrorKind::Cancelled, message: "the turn was cancelled".into() }),
    }
}

fn failed(error: &Error) -> wit::Error {
    let kind = match error.kind() {
        ErrorKind::Denied => wit::ErrorKind::Denied,
        ErrorKind::InvalidRequest => wit::ErrorKind::InvalidRequest,
        ErrorKind::Dns => wit::ErrorKind::Dns,
        ErrorKind::Connect => wit::ErrorKind::Connect,
        ErrorKind::Tls => wit::ErrorKind::Tls,
        ErrorKind::TimedOut => wit::ErrorKind::TimedOut,
        ErrorKind::TooLarge => wit::ErrorKind::TooLarge,
        ErrorKind::Protocol => wit::ErrorKind::Protocol,
    };
    wit::Error { kind, message: error.message().to_owned() }
}
