//! `http`: outbound calls, all through the egress.

use std::time::Duration;

use bytes::Bytes;
use talaria_egress::{Error, ErrorKind, Request};
use talaria_turns::Scope;
use tokio::task::JoinSet;
use tracing::Instrument as _;
use wasmtime::Result;
use wasmtime::component::Resource;

use super::outbound::Place;
use super::{Ctx, unless_cancelled};
use crate::contract::bindings::talaria::executor::http as wit;

/// A response whose body is still coming. Dropping it closes the connection.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub struct Exchange(talaria_egress::Exchange, Place);

impl Ctx {
    /// Room for a request, and the request with what the turn may still receive.
    fn admit(&mut self, request: wit::Request) -> Result<(Place, Request), wit::Error> {
        let shared = self.shared().cloned().ok_or_else(|| wit::Error {
            kind: wit::ErrorKind::Unsupported,
            message: "describe has no egress".into(),
        })?;
        let place = self.outbound.admit(&shared).map_err(|error| failed(&error))?;
        place.send(request.body.len()).map_err(|error| failed(&error))?;
        let mut request = convert(request);
        request.max_bytes = Some(request.max_bytes.unwrap_or(usize::MAX).min(place.left()));
        Ok((place, request))
    }
}

impl wit::Host for Ctx {
    async fn fetch(&mut self, request: wit::Request) -> Result<Result<wit::Response, wit::Error>> {
        let (place, request) = match self.admit(request) {
            Ok(admitted) => admitted,
            Err(error) => return Ok(Err(error)),
        };
        let response = apart(move || async move {
            let response = place.shared.egress.fetch(&place.shared.access, request).await?;
            place.receive(response.body.len())?;
            Ok(response)
        });
        let response = guarded(self.scope(), response).await;
        Ok(response.map(|response| wit::Response {
            status: response.status,
            headers: response.headers,
            body: response.body.into(),
        }))
    }

    async fn open(&mut self, request: wit::Request) -> Result<Result<Resource<Exchange>, wit::Error>> {
        let (place, request) = match self.admit(request) {
            Ok(admitted) => admitted,
            Err(error) => return Ok(Err(error)),
        };
        let exchange = apart(move || async move {
            let exchange = place.shared.egress.open(&place.shared.access, request).await?;
            Ok(Exchange(exchange, place))
        });
        match guarded(self.scope(), exchange).await {
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
        let scope = self.scope().cloned();
        let exchange = self.table.get_mut(&exchange)?;
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let Exchange(exchange, place) = exchange;
        let read = async {
            let piece = exchange.read(max).await?;
            place.receive(piece.as_ref().map_or(0, Bytes::len))?;
            Ok(piece)
        };
        let read = guarded(scope.as_ref(), read).await;
        let bytes = read.as_ref().ok().and_then(Option::as_ref).map(|bytes| bytes.len());
        tracing::trace!(target: "import", max, bytes, "http.read");
        Ok(read.map(|bytes| bytes.map(Into::into)))
    }

    async fn next_event(
        &mut self,
        exchange: Resource<Exchange>,
    ) -> Result<Result<Option<wit::SseEvent>, wit::Error>> {
        let scope = self.scope().cloned();
        let exchange = self.table.get_mut(&exchange)?;
        let Exchange(exchange, place) = exchange;
        let next = async {
            let event = exchange.next_event().await?;
            place.receive(event.as_ref().map_or(0, |event| event.data.len()))?;
            Ok(event)
        };
        let next = guarded(scope.as_ref(), next).await;
        let bytes = next.as_ref().ok().and_then(Option::as_ref).map(|event| event.data.len());
        tracing::trace!(target: "import", bytes, "http.next-event");
        Ok(next.map(|event| {
            event.map(|event| wit::SseEvent { event: event.event, data: event.data, id: event.id })
        }))
    }

    async fn await_event(&mut self, exchange: Resource<Exchange>, timeout_ms: u32) -> Result<bool> {
        let scope = self.scope().cloned();
        let exchange = self.table.get_mut(&exchange)?;
        let limit = Duration::from_millis(timeout_ms.into());
        // A cancelled turn has something to be told: that it is.
        Ok(unless_cancelled(scope.as_ref(), exchange.0.await_event(limit)).await.unwrap_or(true))
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

/// A call in a task of its own, so that the client's deep call stack is not on the guest's, which is kept for as long as
/// the guest waits. Dropping the future ends the call.
///
/// The task begins at once, and makes the call's future itself: a future that held the call until then would have room for
/// it, some KiB, and so would every future around it, on the guest's stack and on the heap.
fn apart<T, F>(call: impl FnOnce() -> F + Send + 'static) -> impl Future<Output = T> + Send
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut task = JoinSet::new();
    task.spawn(async move { Box::pin(call()).await }.in_current_span());
    async move {
        match task.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down, and this future with it.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

/// What a call gives; a cancelled turn's pending call fails.
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
