//! The upstream: as fast as a server can be, so that it hides nothing; or one that never answers; or one that talks at
//! a pace, and marks each piece with the time, since this process also reads it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::mark::Mark;

/// What the upstream says; the load looks for [`SAID`] in what comes back.
const COMPLETION: &[u8] = br#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"hermes-agent","choices":[{"index":0,"message":{"role":"assistant","content":"carried safely"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#;
pub(crate) const SAID: &str = "carried safely";

/// A running upstream; gone when dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

/// What is streamed in answer to a turn that asks for a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    /// Pieces that come at once.
    pub(crate) at_once: u32,
    /// Pieces that come one a period after that. Periods of different turns do not begin together.
    pub(crate) pieces: u32,
    pub(crate) period: Duration,
    /// Bytes of a piece, at least.
    pub(crate) bytes: usize,
    /// Whether a turn talks at once, or waits for [`Gateway::begin`].
    pub(crate) waits: bool,
}

struct Shared {
    manner: Manner,
    /// Turns that have arrived.
    asked: watch::Sender<usize>,
    /// Turns that may talk, and since when the last of them.
    begun: watch::Sender<(usize, Instant)>,
}

#[derive(Clone, Copy)]
enum Manner {
    Fast,
    Hangs,
    Talks(Talk),
}

type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

// === impl Gateway ===

impl Gateway {
    /// Answers at once.
    pub(crate) async fn fast() -> Result<Self> {
        Self::start(Manner::Fast).await
    }

    /// Takes turns and never answers them.
    pub(crate) async fn hanging() -> Result<Self> {
        Self::start(Manner::Hangs).await
    }

    /// Talks where a stream is asked for, and is as fast as it can be where not.
    pub(crate) async fn talking(talk: Talk) -> Result<Self> {
        Self::start(Manner::Talks(talk)).await
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns when that many turns have arrived that are not answered at once.
    pub(crate) async fn asked(&self, turns: usize) -> Result<()> {
        self.shared.asked.subscribe().wait_for(|asked| *asked >= turns).await?;
        Ok(())
    }

    /// How many such turns have arrived.
    pub(crate) fn turns(&self) -> usize {
        *self.shared.asked.borrow()
    }

    /// Lets all turns talk that have arrived and wait.
    pub(crate) fn begin(&self) {
        self.shared.begun.send_replace((self.turns(), Instant::now()));
    }

    async fn start(manner: Manner) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            manner,
            asked: watch::Sender::new(0),
            begun: watch::Sender::new((0, Instant::now())),
        });
        let mut serving = JoinSet::new();
        let all = Arc::clone(&shared);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let shared = Arc::clone(&all);
                connections.spawn(async move {
                    let service = service_fn(|request| shared.answer(request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, _serving: serving })
    }
}

// === impl Shared ===

impl Shared {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let is_turn = request.method() == Method::POST;
        // Read, as any gateway would; what it says is the load's business.
        let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        match self.manner {
            Manner::Hangs if is_turn => {
                self.count();
                std::future::pending::<()>().await;
            }
            Manner::Talks(talk) if is_turn && body.is_ok_and(|body| wants_stream(&body)) => {
                let pieces = talk.pieces(Arc::clone(self), self.count());
                let body = StreamBody::new(pieces).boxed_unsync();
                return Ok(response(Either::Right(body), "text/event-stream"));
            }
            _ => {}
        }
        Ok(response(Either::Left(Full::new(Bytes::from_static(COMPLETION))), "application/json"))
    }

    /// Counts a turn in; gives its number.
    fn count(&self) -> usize {
        let mut number = 0;
        self.asked.send_modify(|asked| {
            number = *asked;
            *asked += 1;
        });
        number
    }
}

fn wants_stream(body: &[u8]) -> bool {
    let body: Result<Value, _> = serde_json::from_slice(body);
    body.is_ok_and(|body| body.get("stream") == Some(&Value::Bool(true)))
}

fn response(body: Body, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

// === impl Talk ===

/// Where a turn's talk is.
enum At {
    Role,
    Piece { next: u32, since: Instant },
    Over,
}

impl Talk {
    /// All that a turn says.
    fn pieces(
        self,
        shared: Arc<Shared>,
        number: usize,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        stream::unfold((At::Role, shared), move |(at, shared)| async move {
            let (said, at) = match at {
                At::Role => {
                    let since = Instant::now();
                    (
                        chunk(&json!({ "role": "assistant", "content": "" }), &Value::Null),
                        At::Piece { next: 0, since },
                    )
                }
                At::Piece { next, mut since } => {
                    if self.waits && next == 0 {
                        let mut begun = shared.begun.subscribe();
                        (_, since) = *begun.wait_for(|(turns, _)| *turns > number).await.ok()?;
                        since += self.period.mul_f64(phase(number));
                    }
                    let due = since + self.period * next.saturating_sub(self.at_once);
                    // A timer would round up to its next tick.
                    if due > Instant::now() {
                        sleep_until(due).await;
                    }
                    if next < self.at_once + self.pieces {
                        let said = chunk(&json!({ "content": self.text(due) }), &Value::Null);
                        (said, At::Piece { next: next + 1, since })
                    } else {
                        // An answer that ends in white space would be said again without it.
                        let end = chunk(&json!({ "content": "end." }), &Value::Null);
                        (end + &chunk(&json!({}), &"stop".into()) + "data: [DONE]\n\n", At::Over)
                    }
                }
                At::Over => return None,
            };
            Some((Ok(Frame::data(Bytes::from(said))), (at, shared)))
        })
    }

    /// A mark, and words up to the size; the last character is one that no redaction waits behind.
    fn text(self, due: Instant) -> String {
        const WORDS: &str = "and so on ";
        let mut text = format!("{} ", Mark::now(due));
        while text.len() < self.bytes {
            text.push_str(WORDS);
        }
        text
    }
}

/// Where in the period a turn begins: spread evenly, however many there are.
fn phase(number: usize) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let number = number as f64;
    (number * GOLDEN).fract()
}

fn chunk(delta: &Value, finish_reason: &Value) -> String {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "hermes-agent",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    });
    format!("data: {chunk}\n\n")
}
