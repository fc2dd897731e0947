//! The upstream: one that answers as fast as possible, so that it hides nothing; one that never answers; or one that
//! streams at a fixed pace and marks each piece with the time, which this process reads back.

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

/// The upstream's answer; the load generator looks for [`SAID`] in the bridge's.
const COMPLETION: &[u8] = br#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"hermes-agent","choices":[{"index":0,"message":{"role":"assistant","content":"carried safely"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#;
pub(crate) const SAID: &str = "carried safely";

/// A running upstream. Dropping it closes its port.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

/// A streamed answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    /// Pieces that are sent at once.
    pub(crate) at_once: u32,
    /// Pieces that follow, one per period. The periods of different turns do not begin together.
    pub(crate) pieces: u32,
    pub(crate) period: Duration,
    /// The least bytes of a piece.
    pub(crate) bytes: usize,
    /// Whether a turn waits for [`Gateway::begin`] before it sends.
    pub(crate) waits: bool,
}

struct Shared {
    manner: Manner,
    /// The number of turns that have arrived.
    asked: watch::Sender<usize>,
    /// The number of turns that may send, and since when.
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

    /// Accepts turns and never answers them.
    pub(crate) async fn hanging() -> Result<Self> {
        Self::start(Manner::Hangs).await
    }

    /// Streams if a stream is requested, and otherwise answers at once.
    pub(crate) async fn talking(talk: Talk) -> Result<Self> {
        Self::start(Manner::Talks(talk)).await
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Waits until that many turns have arrived that are not answered at once.
    pub(crate) async fn asked(&self, turns: usize) -> Result<()> {
        self.shared.asked.subscribe().wait_for(|asked| *asked >= turns).await?;
        Ok(())
    }

    /// The number of such turns.
    pub(crate) fn turns(&self) -> usize {
        *self.shared.asked.borrow()
    }

    /// Lets all waiting turns send.
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
        // Any gateway would read the body.
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

    /// Counts a turn. Returns its number.
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

/// The progress of a streamed answer.
enum At {
    Role,
    Piece { next: u32, since: Instant },
    Over,
}

impl Talk {
    /// The pieces of an answer.
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
                    // A timer would round up to the next tick.
                    if due > Instant::now() {
                        sleep_until(due).await;
                    }
                    if next < self.at_once + self.pieces {
                        let said = chunk(&json!({ "content": self.text(due) }), &Value::Null);
                        (said, At::Piece { next: next + 1, since })
                    } else {
                        // An answer that ends in white space would be repeated without it.
                        let end = chunk(&json!({ "content": "end." }), &Value::Null);
                        (end + &chunk(&json!({}), &"stop".into()) + "data: [DONE]\n\n", At::Over)
                    }
                }
                At::Over => return None,
            };
            Some((Ok(Frame::data(Bytes::from(said))), (at, shared)))
        })
    }

    /// A mark, padded with words; the last character is one after which the redactor holds nothing back.
    fn text(self, due: Instant) -> String {
        const WORDS: &str = "and so on ";
        let mut text = format!("{} ", Mark::now(due));
        while text.len() < self.bytes {
            text.push_str(WORDS);
        }
        text
    }
}

/// Where in the period a turn begins, spread evenly for any number of turns.
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
