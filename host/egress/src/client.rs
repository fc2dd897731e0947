//! The client of the process: connection pools that all executors share, and the one function that every call goes through.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use talaria_redact::Values;
use tokio::runtime::Id;
use tracing::field;

use crate::access::Access;
use crate::address::Addresses;
use crate::error::Error;
use crate::exchange::{Deadline, Exchange, Frames};
use crate::headers;
use crate::origin::{Origin, OriginClient};
use crate::pool::Pool;
use crate::proxy::Proxies;
use crate::resolver::{Names, Resolver};
use crate::stub_upstream::StubUpstream;

/// The pooled client. Cheap to clone; all clones share the pools.
#[derive(Debug, Clone)]
pub struct Egress {
    /// One pool for each set of addresses, because the address of a pooled connection is not checked again.
    public: Pool,
    private: Pool,
    any: Pool,
    stub_upstream: Option<StubUpstream>,
}

/// How connections are made and kept.
#[derive(Debug, Clone)]
pub struct Config {
    /// The longest wait for lookup, TCP and TLS together. 10 s: three SYN retries.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept. 90 s: a little above the keep-alive of common servers.
    pub idle_timeout: Duration,
    /// The number of idle connections kept for one host. 64: the concurrent turns of a small installation. With fewer than
    /// there are calls at once, the others open a connection each time.
    pub idle_per_host: usize,
    /// The runtimes whose calls use connections of their own; each keeps its part of `idle_per_host`.
    pub runtimes: Arc<[Id]>,
    /// The certificates that `https` trusts.
    pub roots: Roots,
    /// How names become addresses.
    pub names: Names,
    /// The proxies between this host and the internet.
    pub proxies: Proxies,
    /// Sends all calls to a stub instead, and reports them.
    pub stub_upstream: Option<StubUpstream>,
}

/// The certificates that `https` trusts.
#[derive(Debug, Clone)]
pub enum Roots {
    /// Those of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`, read on the first `https` call, and these.
    System {
        /// Certificates that the operator trusts as well.
        and: Arc<[CertificateDer<'static>]>,
    },
    /// These.
    Given(Arc<RootCertStore>),
}

/// A request as a guest writes it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The method, in upper or lower case.
    pub method: String,
    /// An absolute URL.
    pub url: String,
    /// Headers; a value may hold `{secret:NAME}`.
    pub headers: Vec<(String, String)>,
    /// The body; its length is sent, so `content-length` must not be among the headers.
    pub body: Bytes,
    /// Deadline of the whole call, capped by [`Bounds::timeout`](crate::Bounds::timeout).
    pub timeout: Option<Duration>,
    /// The most bytes of the response's body, capped by the bound of `fetch` or `open`.
    pub max_bytes: Option<usize>,
}

/// A whole response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, whatever it is: a 3xx is not followed, a 5xx is not an error here.
    pub status: u16,
    /// The headers, without those of the connection, `set-cookie`, and values that are not UTF-8.
    pub headers: Vec<(String, String)>,
    /// The body as sent; nothing is decompressed.
    pub body: Bytes,
}

// === impl Egress ===

impl Egress {
    /// Creates the client; it reads and connects nothing until the first call.
    pub fn new(config: Config) -> Self {
        let pool = |addresses| Pool::new(config.clone(), Resolver::new(config.names.clone(), addresses));
        Self {
            public: pool(Addresses::Public),
            private: pool(Addresses::Private),
            any: pool(Addresses::Any),
            stub_upstream: config.stub_upstream.clone(),
        }
    }

    /// Makes a call and reads the whole response. One deadline covers everything from the connection to the last byte.
    pub async fn fetch(&self, access: &Access, request: Request) -> Result<Response, Error> {
        self.fetch_masked(access, request, true).await
    }

    /// Returns a client for calls that the host itself makes to this origin. `caller` names them in messages and the log.
    pub fn origin_client(&self, caller: &str, origin: &Origin) -> OriginClient {
        OriginClient::new(self.clone(), caller, origin)
    }

    pub(crate) async fn fetch_masked(
        &self,
        access: &Access,
        request: Request,
        masked: bool,
    ) -> Result<Response, Error> {
        let most = access.bounds.response_body;
        let observed = self.stub_upstream.as_ref().map(|stub| stub.begin(true, &request));
        let response = async { self.send(access, request, most, masked).await?.collect().await }.await;
        if let Some(observed) = observed {
            observed.ended(match &response {
                Ok(response) => Ok((response.status, Some(response.body.len()))),
                Err(error) => Err(error.clone()),
            });
        }
        response
    }

    /// Makes a call and returns as soon as the response's headers have arrived. The exchange reads the body on demand. The
    /// one deadline of the request covers the headers and every read.
    pub async fn open(&self, access: &Access, request: Request) -> Result<Exchange, Error> {
        self.open_masked(access, request, true).await
    }

    pub(crate) async fn open_masked(
        &self,
        access: &Access,
        request: Request,
        masked: bool,
    ) -> Result<Exchange, Error> {
        let most = access.bounds.stream_bytes;
        let observed = self.stub_upstream.as_ref().map(|stub| stub.begin(false, &request));
        let exchange = self.send(access, request, most, masked).await;
        if let Some(observed) = observed {
            observed.ended(match &exchange {
                Ok(exchange) => Ok((exchange.status(), None)),
                Err(error) => Err(error.clone()),
            });
        }
        exchange
    }

    // Below the default level: a span takes as long as a tenth of all else in a call.
    #[tracing::instrument(
        level = "debug",
        name = "egress.send",
        skip_all,
        fields(executor = %access.executor, method = field::Empty, url = field::Empty, status = field::Empty)
    )]
    async fn send(
        &self,
        access: &Access,
        request: Request,
        most: usize,
        masked: bool,
    ) -> Result<Exchange, Error> {
        let bounds = &access.bounds;
        let deadline =
            Deadline::after(request.timeout.map_or(bounds.timeout, |asked| asked.min(bounds.timeout)));
        let target = access.admit(&request.method, &request.url)?;
        tracing::Span::current()
            .record("method", target.method.as_str())
            .record("url", field::display(&target));

        let headers = headers::outgoing(access, &target, request.headers)?;
        if request.body.len() > bounds.request_body {
            let (length, most) = (request.body.len(), bounds.request_body);
            return Err(Error::invalid(format!("the body is {length} bytes; at most {most} may be sent")));
        }
        let pool = match access.reach(&target) {
            Addresses::Public => &self.public,
            Addresses::Private => &self.private,
            Addresses::Any => &self.any,
        };
        let response =
            pool.send(&target, headers, request.body, deadline).await.map_err(|error| {
                match error.special() {
                    Some(special) => access.misled(special, &target),
                    None => error,
                }
            })?;
        let (head, body) = response.into_parts();
        let secrets = if masked { access.secrets.of(&target) } else { Values::default() };
        if !secrets.is_empty() {
            headers::check_encoding(&head.headers, &target.authority())?;
        }
        let headers = headers::incoming(&head.headers, bounds, &secrets)?;
        let most = request.max_bytes.map_or(most, |asked| asked.min(most));
        let frames = Frames::new(body, most, target.authority(), secrets)?;
        Ok(Exchange::new(head.status.as_u16(), headers, frames, deadline, bounds.sse_event))
    }
}

// === impl Roots ===

impl Default for Roots {
    fn default() -> Self {
        Self::System { and: Arc::new([]) }
    }
}

impl Roots {
    /// Those of the system, and the certificates of a file in PEM.
    ///
    /// # Errors
    /// A text without a certificate, or with one that cannot be used.
    pub fn with_pem(pem: &[u8]) -> Result<Self, String> {
        let mut usable = RootCertStore::empty();
        let mut found = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
            usable.add(certificate.clone()).map_err(|error| format!("no usable certificate: {error}"))?;
            found.push(certificate);
        }
        match found.is_empty() {
            true => Err("there is no certificate in it; it needs `-----BEGIN CERTIFICATE-----`".to_owned()),
            false => Ok(Self::System { and: found.into() }),
        }
    }
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            idle_per_host: 64,
            runtimes: Arc::default(),
            roots: Roots::default(),
            names: Names::System,
            proxies: Proxies::default(),
            stub_upstream: None,
        }
    }
}
