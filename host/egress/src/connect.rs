//! Makes connections: name lookup, address check, TCP, TLS, each with an error of its own.
//!
//! One timeout covers all of it. TLS is set up on the first `https` call, so that a host that only talks to loopback never
//! reads the system's certificates.
//!
//! **The address that was checked is the address connected to.** A name passes [`Resolver`], which drops the addresses that
//! may not be connected to; a literal address skips the resolver and is checked in [`Tcp`]. There is no second lookup. The
//! address of a pooled connection is not checked again, so each set of addresses has a pool of its own. Through a [proxy], the
//! checked address is the one that the proxy connects to, unless the operator leaves names to the proxy.
//!
//! [proxy]: crate::proxy

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tower_service::Service;

use crate::address::{Addresses, Special};
use crate::client::{Config, Roots};
use crate::error::{ErrorKind, Pretty};
use crate::proxy::{Proxies, Proxy};
use crate::resolver::Resolver;

/// TCP keep-alive: below the five minutes after which common NATs and load balancers drop an idle connection, because a
/// turn may wait 600 s for its first byte.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The addresses of a name that a proxy is asked for. Four: two of each family.
const TUNNELS: usize = 4;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Makes connections for the pool.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: Tcp,
    tls: Arc<Tls>,
    timeout: Duration,
    /// Connects to this address instead of any other.
    stub: Option<SocketAddr>,
}

/// The TCP step, with errors in our words.
#[derive(Clone)]
struct Tcp {
    http: HttpConnector<Resolver>,
    resolver: Resolver,
    /// Shared, because every call copies its connector several times.
    proxying: Arc<Proxying>,
    timeout: Duration,
}

/// The way through proxies.
struct Proxying {
    proxies: Proxies,
    /// Connects to proxies, wherever they are: the operator named them.
    connector: HttpConnector<Resolver>,
}

/// The TLS configuration, created when first needed.
struct Tls {
    roots: Roots,
    config: OnceCell<Arc<ClientConfig>>,
}

/// Why a connection failed. Users read the message as the reason of "unreachable".
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Failure {
    #[error("connecting to {special} is not allowed ({destination})")]
    Address { special: Special, destination: String },
    #[error("name not found ({name})")]
    Name { name: String },
    #[error("name not found ({name}); if only the proxy can look names up, set egress.proxy_resolves = true")]
    NameBehindProxy { name: String },
    #[error("{reason} ({authority})")]
    Proxy { reason: String, authority: String },
    #[error("{reason} ({authority})")]
    Tcp { reason: String, authority: String },
    #[error("connecting timed out after {} ({authority})", Pretty(*.after))]
    TimedOut { after: Duration, authority: String },
    #[error("{reason} ({authority})")]
    Tls { reason: String, authority: String },
    #[error("no root certificates found; install ca-certificates or set SSL_CERT_FILE")]
    NoRoots,
}

// === impl Connector ===

impl Connector {
    pub(crate) fn new(config: Config, resolver: Resolver) -> Self {
        let Config { connect_timeout: timeout, roots, names, proxies, stub_upstream, .. } = config;
        let connector = |resolver: Resolver| {
            let mut http = HttpConnector::new_with_resolver(resolver);
            http.enforce_http(false);
            http.set_nodelay(true);
            http.set_keepalive(Some(KEEPALIVE));
            // hyper divides it among the addresses of a name, so that a dead first one leaves time for the next.
            http.set_connect_timeout(Some(timeout));
            http
        };
        let proxying = Proxying { proxies, connector: connector(Resolver::new(names, Addresses::Any)) };
        let http = connector(resolver.clone());
        let tls = Arc::new(Tls { roots, config: OnceCell::new() });
        let stub = stub_upstream.map(|stub| stub.address);
        Self { tcp: Tcp { http, resolver, proxying: Arc::new(proxying), timeout }, tls, timeout, stub }
    }

    async fn connect(mut self, uri: Uri) -> Result<Stream, Failure> {
        if let Some(stub) = self.stub {
            let connected = TcpStream::connect(stub).await;
            let stream = connected.map_err(|error| Failure::tcp(&error, stub.to_string(), self.timeout))?;
            return Ok(MaybeHttpsStream::Http(TokioIo::new(stream)));
        }
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Ok(MaybeHttpsStream::Http(self.tcp.call(uri).await?));
        }
        let config = self.tls.config().await?;
        let authority = authority(&uri);
        let names = Arc::new(DefaultServerNameResolver::default());
        let mut https = HttpsConnector::new(self.tcp, config, true, names);
        https.call(uri).await.map_err(|error| match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => Failure::handshake(&*error, &authority),
        })
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failure;
    type Future = Connecting<Stream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let after = self.timeout;
        let authority = authority(&uri);
        let connecting = self.clone().connect(uri);
        Box::pin(async move {
            let timed_out = |_elapsed| Failure::TimedOut { after, authority };
            tokio::time::timeout(after, connecting).await.map_err(timed_out)?
        })
    }
}

/// `host:port`, with the scheme's port if the URL has none.
pub(crate) fn authority(uri: &Uri) -> String {
    let port = uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 });
    format!("{}:{port}", uri.host().unwrap_or_default())
}

/// Returns the address of a host that is one, with or without the brackets of a URL.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

// === impl Tcp ===

impl Tcp {
    /// Connects through a proxy.
    async fn through(self, proxy: Arc<Proxy>, uri: Uri) -> Result<TokioIo<TcpStream>, Failure> {
        let authority = authority(&uri);
        let host = uri.host().unwrap_or_default();
        let destinations = if literal(host).is_some() || self.proxying.proxies.resolve_names() {
            vec![authority.clone()]
        } else {
            let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
            let found = self.resolver.resolve(host.to_owned()).await.map_err(|failure| match failure {
                Failure::Name { name } => Failure::NameBehindProxy { name },
                other => other,
            })?;
            let found = found.into_iter().take(TUNNELS);
            found.map(|address| SocketAddr::new(address.ip(), port).to_string()).collect()
        };
        let mut failed = Failure::proxy("no address", &authority);
        let mut to_proxy = self.proxying.connector.clone();
        for destination in destinations {
            let stream = to_proxy.call(proxy.uri()?).await.map_err(|error| {
                tracing::warn!(%proxy, %error, "the proxy is unreachable");
                match Failure::tcp(&error, authority.clone(), self.timeout) {
                    Failure::Tcp { reason, authority } => {
                        Failure::proxy(format!("the proxy is unreachable: {reason}"), &authority)
                    }
                    Failure::Name { .. } => Failure::proxy("the proxy's name was not found", &authority),
                    other => other,
                }
            })?;
            let mut stream = stream.into_inner();
            match proxy.tunnel(&mut stream, &destination, &authority).await {
                Ok(()) => return Ok(TokioIo::new(stream)),
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = Failure;
    type Future = Connecting<TokioIo<TcpStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let after = self.timeout;
        let authority = authority(&uri);
        if let Some(Err(special)) =
            uri.host().and_then(literal).map(|address| self.resolver.addresses().check(address))
        {
            return Box::pin(std::future::ready(Err(Failure::Address { special, destination: authority })));
        }
        if let Some(proxy) = self.proxying.proxies.of(&uri) {
            return Box::pin(self.clone().through(proxy, uri));
        }
        let connecting = self.http.call(uri);
        Box::pin(async move { connecting.await.map_err(|error| Failure::tcp(&error, authority, after)) })
    }
}

// === impl Tls ===

impl Tls {
    /// Returns the configuration. A failure is not cached, so that installing certificates helps without a restart.
    async fn config(&self) -> Result<Arc<ClientConfig>, Failure> {
        let made = self.config.get_or_try_init(|| async {
            let roots = match &self.roots {
                Roots::Given(roots) => Arc::clone(roots),
                // Blocking: reads some hundred files or one large one.
                Roots::System { and } => {
                    let more = Arc::clone(and);
                    let read = tokio::task::spawn_blocking(move || system_roots(&more));
                    read.await.map_err(|_cancelled| Failure::NoRoots)?
                }
            };
            if roots.is_empty() {
                return Err(Failure::NoRoots);
            }
            client_config(roots).map(Arc::new)
        });
        made.await.cloned()
    }
}

fn system_roots(more: &[CertificateDer<'static>]) -> Arc<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "cannot read root certificates");
    }
    let mut roots = RootCertStore::empty();
    let (added, ignored) =
        roots.add_parsable_certificates(found.certs.into_iter().chain(more.iter().cloned()));
    tracing::debug!(added, ignored, "root certificates loaded");
    Arc::new(roots)
}

fn client_config(roots: Arc<RootCertStore>) -> Result<ClientConfig, Failure> {
    // Passed here rather than installed for the process, so that no other crate decides our cryptography.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::Tls { reason: error.to_string(), authority: "configuration".to_owned() })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

// === impl Failure ===

impl Failure {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Address { .. } => ErrorKind::Denied,
            Self::Name { .. } | Self::NameBehindProxy { .. } => ErrorKind::Dns,
            Self::Tcp { .. } | Self::Proxy { .. } | Self::TimedOut { .. } => ErrorKind::Connect,
            Self::Tls { .. } | Self::NoRoots => ErrorKind::Tls,
        }
    }

    pub(crate) fn proxy(reason: impl Into<String>, authority: &str) -> Self {
        Self::Proxy { reason: reason.into(), authority: authority.to_owned() }
    }

    fn tcp(error: &(dyn StdError + 'static), authority: String, after: Duration) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(failure) = error.downcast_ref::<Self>() {
                return failure.clone();
            }
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::TimedOut) => return Self::TimedOut { after, authority },
                Some(kind) => return Self::Tcp { reason: kind.to_string(), authority },
                None => cause = error.source(),
            }
        }
        Self::Tcp { reason: "no connection".to_owned(), authority }
    }

    /// Translates the error of the TLS step: `io::Error`s around a `rustls::Error`, or without one.
    fn handshake(error: &(dyn StdError + 'static), authority: &str) -> Self {
        tracing::debug!(error = ?error, authority, "tls handshake failed");
        let mut inner = Some(error);
        while let Some(error) = inner {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Self::tls(error, authority);
            }
            // `source` of an `io::Error` skips the error it holds.
            inner = match error.downcast_ref::<io::Error>().map(io::Error::get_ref) {
                Some(Some(held)) => Some(held),
                Some(None) => None,
                None => error.source(),
            };
        }
        Self::Tls {
            reason: "connection closed during the TLS handshake".to_owned(),
            authority: authority.to_owned(),
        }
    }

    pub(crate) fn tls(error: &rustls::Error, authority: &str) -> Self {
        let reason = match error {
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::UnknownIssuer => "the certificate's issuer is not trusted".to_owned(),
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "the certificate is for another name".to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the certificate has expired".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "the certificate is not valid yet; check the clock".to_owned()
                }
                other => format!("bad certificate: {other}"),
            },
            rustls::Error::InvalidMessage(_) => "the server does not speak TLS; is it http://?".to_owned(),
            other => format!("TLS failed: {other}"),
        };
        Self::Tls { reason, authority: authority.to_owned() }
    }
}
