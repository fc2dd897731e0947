//! WASI 0.2 for guests: enough for programs to start, and no access to the outside.
//!
//! There are no sockets, arguments or environment variables, and no files except in a granted folder. Clocks have a
//! resolution of one millisecond unless precise clocks are granted. Random numbers are always available, since hash
//! tables, Python and JavaScript do not start without them; secure random numbers need a grant (docs/decisions/016).
//!
//! `wasi:http/outgoing-handler` is always linked, so that programs with a built-in `fetch` load. Its calls use the same
//! egress as `talaria:executor/http`, with the same grants, secrets and limits. Without the grant `wasi_http` every
//! such call is denied. The WASI library is built without its own HTTP client, so no call can bypass the egress.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, LengthLimitError, Limited, StreamBody};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use talaria_egress::{DenialKind, ErrorKind, Request};
use talaria_turns::StepKind;
use wasmtime_wasi::{FsPerms, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use super::Ctx;
use super::outbound::{OpenCall, Outbound, Verdict, call_name};
use super::stdio::Stdio;
use crate::limits::{FOLDER, Wasi};

/// The resolution of clocks unless precise ones are granted. It is too coarse for timing attacks on CPU caches.
const COARSE: Duration = Duration::from_millis(1);
/// The size of the pieces in which a response body is passed to the guest.
const PIECE: usize = 64 << 10;
/// The maximum size of header fields that a guest may hold at once, the same as the egress allows in a request.
const FIELDS: usize = 64 << 10;
/// Headers that the egress sets itself and that are dropped from a guest's request.
const OURS: [http::HeaderName; 2] = [http::header::HOST, http::header::CONTENT_LENGTH];

/// Creates the WASI context of a guest according to its grant.
pub(super) fn context(stdio: &Stdio, granted: &Wasi) -> WasiCtx {
    let mut wasi = WasiCtx::builder();
    wasi.stdout(stdio.stdout.clone()).stderr(stdio.stderr.clone()).allow_tcp(false).allow_udp(false);
    if !granted.random {
        wasi.secure_random(SmallRng::from_rng(&mut rand::rng()));
    }
    if !granted.precise_clock {
        wasi.wall_clock(Coarse::new()).monotonic_clock(Coarse::new());
    }
    if let Some(folder) = &granted.folder
        && let Err(error) = wasi.preopened_dir(folder, FOLDER, FsPerms::ReadOnly)
    {
        tracing::warn!(folder = %folder.display(), %error, "granted folder not opened; the guest runs without it");
    }
    wasi.build()
}

/// A clock with the resolution [`COARSE`].
struct Coarse {
    start: Instant,
}

impl Coarse {
    fn new() -> Self {
        Self { start: Instant::now() }
    }
}

fn coarse(precise: Duration) -> Duration {
    let step = COARSE.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(precise.as_nanos() / step * step).unwrap_or(u64::MAX))
}

impl HostWallClock for Coarse {
    fn resolution(&self) -> Duration {
        COARSE
    }

    fn now(&self) -> Duration {
        coarse(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

impl HostMonotonicClock for Coarse {
    fn resolution(&self) -> u64 {
        u64::try_from(COARSE.as_nanos()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        u64::try_from(coarse(self.start.elapsed()).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl WasiView for Ctx {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(|| {
            let stdio = self.stdio.insert(Stdio::new(self.purpose.shared(), &self.budget.bytes()));
            let nothing = Wasi::default();
            let granted = self.outbound.shared.as_ref().map_or(&nothing, |shared| &shared.wasi);
            Box::new(context(stdio, granted))
        });
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl WasiHttpView for Ctx {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let ctx = self.wasi_http.get_or_insert_with(|| {
            let mut ctx = WasiHttpCtx::new();
            ctx.set_field_size_limit(FIELDS);
            Box::new(ctx)
        });
        WasiHttpCtxView { hooks: &mut self.outbound, table: &mut self.table, ctx }
    }
}

type Sent = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for Outbound {
    fn set_host_header(&mut self) -> bool {
        false
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let Some(shared) = self.shared.clone() else {
            return Box::new(std::future::ready(Err(Error::HttpRequestDenied)));
        };
        if !shared.wasi.http {
            // This error has no message; `deny` logs the configuration line to add.
            self.verdict.denied(&shared.access.deny(
                DenialKind::WasiHttp,
                "use wasi:http",
                "wasi_http = true",
            ));
            return Box::new(std::future::ready(Err(Error::HttpRequestDenied)));
        }
        let name = call_name(request.method().as_str(), &request.uri().to_string());
        let open_call = match self.admit(&shared, StepKind::Call, &name) {
            Ok(open_call) => open_call,
            Err(error) => return Box::new(std::future::ready(Err(failed(&error)))),
        };
        let (cancelled, verdict) = (self.cancelled.clone().unwrap_or_default(), self.verdict.clone());
        Box::new(async move {
            match cancelled.run_until_cancelled(send(open_call, request, options, verdict)).await {
                Some(sent) => sent,
                None => Err(Error::ConnectionTerminated),
            }
        })
    }
}

async fn send(
    open_call: OpenCall,
    request: http::Request<WasiBody>,
    options: Option<RequestOptions>,
    verdict: Verdict,
) -> Sent {
    let (head, body) = request.into_parts();
    let most = open_call.shared.access.bounds.request_body;
    let body: Bytes = match Limited::new(body, most).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(Error::HttpRequestBodySize(None)),
        Err(_) => return Err(Error::ConnectionTerminated),
    };
    open_call.send(body.len()).map_err(|error| failed(&error))?;
    let mut headers = Vec::with_capacity(head.headers.len());
    for (name, value) in head.headers.iter().filter(|(name, _)| !OURS.contains(name)) {
        let Ok(value) = value.to_str() else {
            return Err(Error::HttpRequestHeaderSize {
                field_name: Some(name.to_string()),
                field_size: None,
            });
        };
        headers.push((name.as_str().to_owned(), value.to_owned()));
    }
    open_call.propagate(&mut headers);
    let request = Request {
        method: head.method.as_str().to_owned(),
        url: head.uri.to_string(),
        headers,
        body,
        timeout: None,
        max_bytes: Some(open_call.left()),
    };
    let url = request.url.clone();
    let opening = open_call.shared.egress.open(&open_call.shared.access, request);
    let exchange = match options.and_then(|options| options.first_byte_timeout) {
        Some(limit) => tokio::time::timeout(limit, opening).await.map_err(|_| Error::HttpResponseTimeout)?,
        None => opening.await,
    };
    let exchange = exchange.map_err(|error| {
        open_call.failed(&error);
        if error.kind() == ErrorKind::Denied {
            verdict.denied(error.message());
        }
        failed(&error)
    })?;
    open_call.answered(exchange.status());
    verdict.answered(&url, exchange.status());
    let mut response = http::Response::builder().status(exchange.status());
    for (name, value) in exchange.headers() {
        response = response.header(name, value);
    }
    let pieces = stream::unfold(Some((exchange, open_call)), |open| async {
        let (mut exchange, open_call) = open?;
        let piece = exchange.read(PIECE).await.and_then(|piece| {
            open_call.explained(exchange.status(), piece.as_deref().unwrap_or_default());
            open_call.receive(piece.as_ref().map_or(0, Bytes::len))?;
            Ok(piece)
        });
        match piece {
            Ok(None) => None,
            Ok(Some(piece)) => Some((Ok(Frame::data(piece)), Some((exchange, open_call)))),
            Err(error) => Some((Err(failed(&error)), None)),
        }
    });
    let response = response.body(StreamBody::new(pieces).boxed_unsync());
    let response = response.map_err(|_| Error::HttpProtocolError)?;
    Ok((response, Box::new(std::future::ready(Ok(())))))
}

fn failed(error: &talaria_egress::Error) -> Error {
    match error.kind() {
        ErrorKind::Denied => Error::HttpRequestDenied,
        ErrorKind::InvalidRequest => Error::HttpRequestUriInvalid,
        ErrorKind::Dns => Error::DnsError { rcode: None, info_code: None },
        ErrorKind::Connect => Error::ConnectionRefused,
        ErrorKind::Tls => Error::TlsProtocolError,
        ErrorKind::TimedOut => Error::ConnectionReadTimeout,
        ErrorKind::TooLarge => Error::HttpResponseBodySize(None),
        ErrorKind::Protocol => Error::HttpProtocolError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_clocks_have_a_resolution_of_one_millisecond() {
        assert_eq!(coarse(Duration::from_micros(1_999)), COARSE);
        let clock = Coarse::new();
        assert_eq!(HostMonotonicClock::now(&clock) % 1_000_000, 0);
        assert_eq!(HostWallClock::now(&clock).subsec_nanos() % 1_000_000, 0);
    }
}
