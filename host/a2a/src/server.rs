//! The server: what it is told, how it is put together, and what it has counted. The connections are `talaria-listen`'s.
//!
//! Shutting down: no new connection, streams end at once, requests under way finish within [`Limits::grace`], what is
//! left is cut. The turns behind cut requests go on; draining them is the domain's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use talaria_turns::{StreamAs, Turns};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::auth::{Auth, Token};
use crate::card::CardConfig;
use crate::cors::Cors;
use crate::endpoint::Endpoint;
use crate::offer::{LiveCard, Stage};
use crate::operation::{Operations, ReplyAs, Streams};
use crate::origin::{Network, Origin};
use crate::respond::Body;
use crate::sign::CardSigner;
use crate::sse::Streaming;

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients reach the server; what the card says.
    pub url: String,
    /// Whether the card says the address that a request was sent to instead, where that is known and nothing is signed.
    pub url_follows: bool,
    /// Who may say by `Forwarded` and `X-Forwarded-*` where others sent their requests.
    pub trusted_proxies: Vec<Network>,
    /// The origins whose pages browsers let call.
    pub cors: Vec<Origin>,
    /// The rest of the card, at the start; see [`Server::card`].
    pub card: CardConfig,
    /// Signs the card. None: the card has no signature.
    pub card_signer: Option<CardSigner>,
    /// The callers. None: everybody may call, and all tasks are everybody's.
    pub tokens: Vec<Token>,
    /// A caller whose token comes later, by [`Auth::renew`]. With one, everybody must prove who they are from the start.
    pub awaited: Option<String>,
    /// How a blocking send is answered whose turn only returned text.
    pub reply: ReplyAs,
    /// How streams and pushes tell an answer that comes in pieces, where the caller does not ask for a form.
    pub stream: StreamAs,
    /// The same for callers by name.
    pub caller_streams: HashMap<String, StreamAs>,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; one more is turned away. The default is ten times the turns that may be under way,
    /// since most connections idle.
    pub connections: usize,
    /// Bytes of a request's body. The default is what the platform passes on at most.
    pub body: usize,
    /// Longest wait for a whole body.
    pub body_timeout: Duration,
    /// Longest wait for the first request of a connection, and for each request's headers. It also ends idle
    /// HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// Longest wait for requests under way when shutting down.
    pub grace: Duration,
    /// Longest silence of a stream before a comment says that it lives. Proxies give up after 30 to 60 seconds.
    pub keep_alive: Duration,
    /// Longest that the first event of a send's stream waits for the turn to say whether its answer is one message.
    pub hold: Duration,
}

/// What else is served at the address of A2A.
pub trait Pages: Send + Sync + 'static {
    /// Whether this path is one of them.
    fn has(&self, path: &str) -> bool;

    /// The answer to a request for one; nobody reads the request's body.
    fn answer<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Response<Full<Bytes>>>;
}

/// The public A2A server.
pub struct Server {
    endpoint: Arc<Endpoint>,
    pages: Option<Arc<dyn Pages>>,
    limits: Limits,
    counts: Counts,
}

/// What a server counts, to be read at any time. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    turned_away: Arc<AtomicU64>,
    streams: Arc<AtomicUsize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            body: 16 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            hold: Duration::from_secs(1),
        }
    }
}

// === impl Config ===

impl Config {
    /// A server at `url` that everybody may call, with all defaults.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            url_follows: false,
            trusted_proxies: Vec::new(),
            cors: Vec::new(),
            card: CardConfig::default(),
            card_signer: None,
            tokens: Vec::new(),
            awaited: None,
            reply: ReplyAs::default(),
            stream: StreamAs::default(),
            caller_streams: HashMap::new(),
            limits: Limits::default(),
        }
    }
}

// === impl Server ===

impl Server {
    /// A server for these turns.
    #[must_use]
    pub fn new(config: Config, turns: Turns) -> Self {
        let Config {
            url,
            url_follows,
            trusted_proxies,
            cors,
            card,
            card_signer,
            tokens,
            awaited,
            reply,
            stream,
            caller_streams,
            limits,
        } = config;
        let auth = match awaited {
            Some(name) => Auth::new(tokens).awaiting(&name),
            None => Auth::new(tokens),
        };
        let stage = Stage {
            url,
            // A signature is of one address.
            follows: url_follows && card_signer.is_none(),
            proxies: trusted_proxies,
            secured: auth.is_required(),
            signer: card_signer,
        };
        let card = LiveCard::new(card, stage);
        let streams = Streams { otherwise: stream, callers: caller_streams };
        let operations = Operations { turns, reply, hold: limits.hold, streams };
        let counts = Counts::default();
        let streaming = Streaming {
            keep_alive: limits.keep_alive,
            closing: CancellationToken::new(),
            open: Arc::clone(&counts.streams),
        };
        let endpoint = Endpoint {
            operations,
            card,
            auth,
            cors: Cors::new(cors),
            streaming,
            max_body: limits.body,
            body_timeout: limits.body_timeout,
        };
        Self { endpoint: Arc::new(endpoint), pages: None, limits, counts }
    }

    /// The same server, with pages beside A2A.
    #[must_use]
    pub fn with_pages(self, pages: Arc<dyn Pages>) -> Self {
        Self { pages: Some(pages), ..self }
    }

    /// What it counts from now on.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Who may call. Lasts beyond the server, and changes it.
    #[must_use]
    pub fn auth(&self) -> Auth {
        self.endpoint.auth.clone()
    }

    /// What its card says. Lasts beyond the server, and changes it.
    #[must_use]
    pub fn card(&self) -> LiveCard {
        self.endpoint.card.clone()
    }

    /// Serves until `shutdown`, and then until requests under way are answered or the grace is over.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let Self { endpoint, pages, limits, counts } = self;
        let Limits { connections, header_timeout, grace, .. } = limits;
        let busy = StatusCode::TOO_MANY_REQUESTS;
        let limits = talaria_listen::Limits { connections, busy, header_timeout, grace };
        // A stream may be open for ever; its client comes back to another server and goes on.
        let (closing, closed) = (endpoint.streaming.closing.clone(), shutdown.clone());
        let streams_end = async move {
            closed.cancelled().await;
            closing.cancel();
        };
        let handle = move |request: Request<Incoming>| {
            let endpoint = Arc::clone(&endpoint);
            let pages = pages.clone().filter(|pages| pages.has(request.uri().path()));
            async move {
                match pages {
                    Some(pages) => pages.answer(&request.into_parts().0).await.map(Body::Whole),
                    None => endpoint.handle(request).await,
                }
            }
        };
        let serving = talaria_listen::serve(listener, limits, counts.turned_away, shutdown, handle);
        tokio::join!(serving, streams_end);
    }
}

// === impl Counts ===

impl Counts {
    /// Connections that were turned away because there were too many.
    #[must_use]
    pub fn connections_refused(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Streams that are open now.
    #[must_use]
    pub fn streams_open(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }
}
