//! A pool of connections, and the one function that sends a request over them.
//!
//! A connection belongs to the runtime that opened it: its task runs there. So a pool has a part for each of
//! [`Config::runtimes`], whose calls then stay on their thread, and one for all others. The parts share nothing but their
//! configuration. A call that moves to another runtime keeps the connection that it has; it works as long as the runtime
//! that opened it lives. The connections of a runtime are closed when it ends.
//!
//! There is one pool for webhooks and one for each set of addresses that guests' calls may connect to, because the address of
//! a pooled connection is not checked again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::{Handle, Id};

use crate::client::Config;
use crate::connect::Connector;
use crate::error::Error;
use crate::exchange::Deadline;
use crate::resolver::Resolver;
use crate::target::Target;

/// Bytes that an HTTP/2 peer may send on one stream before the guest reads. Small compared to the connection's window, so
/// that a guest that does not read cannot stall other turns on the same connection.
const STREAM_WINDOW: u32 = 256 << 10;
/// The window of a whole HTTP/2 connection: enough for 64 guests that do not read.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Bytes of an HTTP/2 header block, like the default of [`Bounds::header_bytes`](crate::Bounds::header_bytes).
const HEADER_LIST: u32 = 64 << 10;
/// A dead HTTP/2 connection is noticed after interval plus timeout, not at the end of a 600 s turn.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection pool. Cheap to clone; all clones share the connections.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    /// The parts of [`Config::runtimes`], in their order.
    parts: Arc<[(Id, Part)]>,
    /// For calls on any other runtime.
    others: Part,
}

type Part = Client<Connector, Full<Bytes>>;

// === impl Pool ===

impl Pool {
    /// Creates the pool; it reads and connects nothing until the first call.
    pub(crate) fn new(config: Config, resolver: Resolver) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(config.idle_timeout)
            .pool_max_idle_per_host(config.idle_per_host.div_ceil(config.runtimes.len().max(1)))
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEADER_LIST)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        let runtimes = Arc::clone(&config.runtimes);
        let connector = Connector::new(config, resolver);
        let part = || builder.build(connector.clone());
        Self { parts: runtimes.iter().map(|runtime| (*runtime, part())).collect(), others: part() }
    }

    /// The part of the runtime that this is called on.
    fn part(&self) -> &Part {
        let here = Handle::try_current().ok().filter(|_| !self.parts.is_empty()).map(|runtime| runtime.id());
        let mine = self.parts.iter().find(|(runtime, _)| Some(*runtime) == here);
        mine.map_or(&self.others, |(_, part)| part)
    }

    /// Sends a request that was checked in every part, waits for the head of the response, and records its status in the span.
    pub(crate) async fn send(
        &self,
        target: &Target,
        headers: HeaderMap,
        body: Bytes,
        deadline: Deadline,
    ) -> Result<Response<Incoming>, Error> {
        let authority = target.authority();
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = target.method.clone();
        *request.uri_mut() = target.uri()?;
        *request.headers_mut() = headers;
        let response = deadline.bound(self.part().request(request), &authority).await?;
        let response = response.map_err(|error| Error::from_client(&error, &authority))?;
        tracing::Span::current().record("status", response.status().as_u16());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::protocol(format!("the server switched protocols unasked ({authority})")));
        }
        Ok(response)
    }
}
