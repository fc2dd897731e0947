//! The public server: its configuration, its composition and its counters. `talaria-listen` handles the connections.
//!
//! On shutdown the server accepts no new connection, ends streams at once, lets requests in flight finish within
//! [`Limits::grace`], and then closes what is left. The turns behind closed requests carry on; `talaria-turns` drains them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use talaria_budget::Budget;
use talaria_listen::Spread;
use talaria_turns::{Principal, StreamAs, TraceSampler, Turns};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::RequestObserver;
use crate::auth::{Auth, Token};
use crate::card::{CardConfig, GrpcAddress};
use crate::cors::Cors;
use crate::door::door;
use crate::endpoint::{Endpoint, Vouched};
use crate::live_card::{CardContext, LiveCard};
use crate::memory;
use crate::open_stream::Streaming;
use crate::operation::{Operations, ReplyAs, Streams};
use crate::origin::{Network, Origin};
use crate::respond::Body;
use crate::sign::CardSigner;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address in the card, where clients reach the server.
    pub url: String,
    /// Whether the card names the address that the request was sent to instead, if it is known and the card is not signed.
    pub url_follows: bool,
    /// The proxies whose `Forwarded` and `X-Forwarded-*` headers are trusted.
    pub trusted_proxies: Vec<Network>,
    /// The origins whose pages may call from a browser.
    pub cors: Vec<Origin>,
    /// The rest of the initial card; see [`Server::card`].
    pub card: CardConfig,
    /// What the card says about gRPC.
    pub grpc: GrpcAddress,
    /// Signs the card; without it the card has no signature.
    pub card_signer: Option<CardSigner>,
    /// The tokens of the callers. If there are none, anyone may call and all tasks are shared.
    pub tokens: Vec<Token>,
    /// A caller whose token arrives later through [`Auth::renew`]. If set, every caller needs a token from the start.
    pub awaited: Option<String>,
    /// Whether callers without a name may list tasks. They share all tasks, so beyond loopback each would see those of
    /// strangers; a task that is named by its id is found either way.
    pub anyone_may_list: bool,
    /// How a blocking send is answered if its turn returned only text.
    pub reply: ReplyAs,
    /// The form of a streamed answer, in streams and push notifications, unless the caller asks for another.
    pub stream: StreamAs,
    /// The form for individual callers, by name.
    pub caller_streams: HashMap<String, StreamAs>,
    /// Limits.
    pub limits: Limits,
}

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Concurrent connections; further ones are rejected. The default is ten times the number of concurrent turns, since most
    /// connections are idle.
    pub connections: usize,
    /// Bytes of a request's body. The default is the largest body that the platform forwards.
    pub body: usize,
    /// The longest wait for a whole body.
    pub body_timeout: Duration,
    /// The longest wait for the first request of a connection and for the headers of each request. It also closes idle
    /// HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// The time within which a client must take 16 KiB of a response, or the rest of it; else its connection is closed.
    pub stall: Duration,
    /// The longest wait for requests in flight on shutdown.
    pub grace: Duration,
    /// The longest silence of a stream before it sends a keep-alive comment. Proxies give up after 30 to 60 seconds.
    pub keep_alive: Duration,
    /// The longest time that a send's stream holds back its first event until the turn says whether its answer is a single
    /// message.
    pub hold: Duration,
}

/// Routes beside A2A on the same port.
pub trait ExtraRoutes: Send + Sync + 'static {
    /// Whether this path is one of them.
    fn matches(&self, path: &str) -> bool;

    /// Answers a request for such a path; the request's body is not read.
    fn respond<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Response<Full<Bytes>>>;
}

/// The public A2A server.
pub struct Server {
    /// The address in the card, and the origins whose pages may call; see [`door`].
    url: String,
    cors: Vec<Origin>,
    endpoint: Arc<Endpoint>,
    extra: Option<Arc<dyn ExtraRoutes>>,
    /// A port for gRPC alone.
    grpc_listener: Option<TcpListener>,
    limits: Limits,
    counts: Counts,
    spread: Spread,
}

/// Answers A2A requests that another server of the host received, for a caller that it vouches for. Cheap to clone.
///
/// They take the way of all others, with the limits and the memory of that caller, but for the door and the token: the server
/// that passes a request on has checked who sends it.
#[derive(Clone)]
pub struct Inside {
    endpoint: Arc<Endpoint>,
}

/// The counters of a server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    rejected: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    streams: Arc<AtomicUsize>,
    budget: Budget,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            body: 16 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            hold: Duration::from_secs(1),
        }
    }
}

// === impl Config ===

impl Config {
    /// Returns the defaults for a server at `url` that anyone may call.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            url_follows: false,
            trusted_proxies: Vec::new(),
            cors: Vec::new(),
            card: CardConfig::default(),
            grpc: GrpcAddress::default(),
            card_signer: None,
            tokens: Vec::new(),
            awaited: None,
            anyone_may_list: true,
            reply: ReplyAs::default(),
            stream: StreamAs::default(),
            caller_streams: HashMap::new(),
            limits: Limits::default(),
        }
    }
}

// === impl Server ===

impl Server {
    /// Creates a server for these turns.
    #[must_use]
    pub fn new(config: Config, turns: Turns) -> Self {
        let Config {
            url,
            url_follows,
            trusted_proxies,
            cors,
            card,
            grpc,
            card_signer,
            tokens,
            awaited,
            anyone_may_list,
            reply,
            stream,
            caller_streams,
            limits,
        } = config;
        let auth = match awaited {
            Some(name) => Auth::new(tokens).awaiting(&name),
            None => Auth::new(tokens),
        };
        let context = CardContext {
            url: url.clone(),
            grpc,
            // A signature covers one address.
            follows: url_follows && card_signer.is_none(),
            proxies: trusted_proxies,
            secured: auth.is_required(),
            signer: card_signer,
        };
        let card = LiveCard::new(card, context);
        let streams = Streams { otherwise: stream, callers: caller_streams };
        let budget = memory::share(turns.budget());
        let hold = limits.hold;
        let counts = Counts { budget: budget.clone(), ..Counts::default() };
        let streaming = Streaming {
            keep_alive: limits.keep_alive,
            closing: CancellationToken::new(),
            open: Arc::clone(&counts.streams),
            budget: budget.clone(),
        };
        let part = |own: Option<Budget>| {
            let share = own.map(|own| budget.share_of(&own, turns.budget().limit()));
            Streaming { budget: share.unwrap_or_else(|| budget.clone()), ..streaming.clone() }
        };
        let (named, others) = turns.budgets_of_callers();
        let shares = named.into_iter().map(|(name, own)| (name, part(own))).collect();
        let streaming = part(others);
        let operations = Operations { turns, reply, hold, streams, anyone_may_list };
        let endpoint = Endpoint {
            operations,
            card,
            auth,
            cors: Cors::new(cors.clone()),
            streaming,
            shares,
            max_body: limits.body,
            body_timeout: limits.body_timeout,
            observers: Vec::new(),
            sampler: None,
        };
        Self {
            url,
            cors,
            endpoint: Arc::new(endpoint),
            extra: None,
            grpc_listener: None,
            limits,
            counts,
            spread: Spread::default(),
        }
    }

    /// Spreads connections to these workers.
    #[must_use]
    pub fn with_workers(self, spread: Spread) -> Self {
        Self { spread, ..self }
    }

    /// Serves gRPC, and nothing else, on this port too: behind the same door, for the same callers, from the same memory.
    #[must_use]
    pub fn with_grpc_listener(self, listener: TcpListener) -> Self {
        Self { grpc_listener: Some(listener), ..self }
    }

    /// Reports every answered request to this observer too.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn RequestObserver>) -> Self {
        if let Some(endpoint) = Arc::get_mut(&mut self.endpoint) {
            endpoint.observers.push(observer);
        }
        self
    }

    /// Traces requests, as this decides. Without it the headers of a trace are not read.
    #[must_use]
    pub fn traced(mut self, sampler: Arc<dyn TraceSampler>) -> Self {
        if let Some(endpoint) = Arc::get_mut(&mut self.endpoint) {
            endpoint.sampler = Some(sampler);
        }
        self
    }

    /// Adds routes beside A2A.
    #[must_use]
    pub fn with_extra_routes(self, routes: Arc<dyn ExtraRoutes>) -> Self {
        Self { extra: Some(routes), ..self }
    }

    /// Returns a handle for requests that another server of the host received. To be called when the server is complete.
    #[must_use]
    pub fn inside(&self) -> Inside {
        Inside { endpoint: Arc::clone(&self.endpoint) }
    }

    /// Returns its counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Returns a handle to the callers' tokens, which can renew them while the server runs.
    #[must_use]
    pub fn auth(&self) -> Auth {
        self.endpoint.auth.clone()
    }

    /// Returns a handle to the card, which can replace it while the server runs.
    #[must_use]
    pub fn card(&self) -> LiveCard {
        self.endpoint.card.clone()
    }

    /// Serves until `shutdown`, then until the requests in flight are answered or the grace period is over.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let Self { url, cors, endpoint, extra, grpc_listener, limits, counts, spread } = self;
        let needs_token = endpoint.auth.is_required();
        let Counts { rejected, refused, .. } = counts;
        let door = |listener: &TcpListener| {
            door(&url, &cors, listener.local_addr().ok(), needs_token, Arc::clone(&refused))
        };
        let Limits { connections, header_timeout, stall, grace, .. } = limits;
        let busy = StatusCode::TOO_MANY_REQUESTS;
        let limits = talaria_listen::Limits { connections, busy, header_timeout, stall, grace };
        // A stream may stay open for ever; its client reconnects to another server and resumes.
        let (closing, closed) = (endpoint.streaming.closing.clone(), shutdown.clone());
        let end_streams = async move {
            closed.cancelled().await;
            closing.cancel();
        };
        let serving_grpc = async {
            let Some(listener) = grpc_listener else { return };
            let (door, endpoint) = (door(&listener), Arc::clone(&endpoint));
            let (rejected, shutdown) = (Arc::clone(&rejected), shutdown.clone());
            let handle = move |request: Request<Incoming>| {
                let endpoint = Arc::clone(&endpoint);
                async move { endpoint.handle_grpc(request).await }
            };
            spread.serve(listener, limits, door, rejected, shutdown, handle).await;
        };
        let door = door(&listener);
        let handle = {
            let endpoint = Arc::clone(&endpoint);
            move |request: Request<Incoming>| {
                let endpoint = Arc::clone(&endpoint);
                let extra = extra.clone().filter(|routes| routes.matches(request.uri().path()));
                async move {
                    match extra {
                        Some(routes) => routes.respond(&request.into_parts().0).await.map(Body::Whole),
                        None => endpoint.handle(request).await,
                    }
                }
            }
        };
        let (rejected, stop) = (Arc::clone(&rejected), shutdown.clone());
        let serving = spread.serve(listener, limits, door, rejected, stop, handle);
        tokio::join!(serving, serving_grpc, end_streams);
    }
}

// === impl Inside ===

impl Inside {
    /// Answers a request of this caller, whose path is that of this server. The card names the address that the request was
    /// sent to with this path, below which the other server serves A2A.
    pub async fn answer(
        &self,
        caller: Principal,
        prefix: &'static str,
        mut request: Request<Incoming>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        request.extensions_mut().insert(Vouched { caller, prefix });
        self.endpoint.handle(request).await.map(|body| body.boxed_unsync())
    }

    /// Whether the other callers need a token.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        self.endpoint.auth.is_required()
    }

    /// Whether everybody who can reach the server may list and read all tasks: it is on loopback, and asks for no tokens.
    #[must_use]
    pub fn shows_all_tasks(&self) -> bool {
        self.endpoint.operations.anyone_may_list && !self.needs_token()
    }
}

// === impl Counts ===

impl Counts {
    /// The number of connections rejected because there were too many.
    #[must_use]
    pub fn connections_rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// The number of requests that were refused because a page of another site sent them, or for their host.
    #[must_use]
    pub fn requests_refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The number of requests and responses rejected because there was no memory.
    #[must_use]
    pub fn memory_refused(&self) -> u64 {
        self.budget.refused()
    }

    /// The number of open streams.
    #[must_use]
    pub fn streams_open(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }
}
