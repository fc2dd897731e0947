//! `https` verifies certificates, speaks HTTP/2 if the server does, and its errors name the problem.

use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use talaria_egress::{Config, Egress, ErrorKind, Roots};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::server::{Server, body, echo, long_body, once};
use crate::{access, fails, get, text};

type Accepting = Pin<Box<dyn Future<Output = Option<TlsStream<TcpStream>>> + Send>>;

pub(crate) const AUTHORITY: &[u8] = include_bytes!("certificates/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("certificates/localhost.pem");
const KEY: &[u8] = include_bytes!("certificates/localhost.key.pem");

/// Trust in the authority of the tests.
pub(crate) fn authority() -> Roots {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY).expect("a certificate")).expect("a root");
    Roots::Given(Arc::new(roots))
}

fn egress(roots: Roots) -> Egress {
    Egress::new(Config { roots, ..Config::default() })
}

/// A TLS server for `localhost` that offers these protocols and echoes.
pub(crate) async fn server(protocols: &[&str]) -> Server {
    Server::start_with(acceptor(protocols), echo).await
}

fn acceptor(protocols: &[&str]) -> impl Fn(TcpStream) -> Accepting + Clone + Send + Sync + 'static {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate for its key");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    move |stream| {
        let accepting = acceptor.accept(stream);
        Box::pin(async move { accepting.await.ok() })
    }
}

#[tokio::test]
async fn the_server_chooses_the_protocol() {
    for (protocols, version) in
        [(&["h2", "http/1.1"][..], "HTTP/2.0"), (&["http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
    {
        let server = server(protocols).await;
        let port = server.address.port();
        let access = access(&[&format!("GET https://localhost:{port}/x")]);
        let egress = egress(authority());
        for _ in 0..2 {
            let response =
                egress.fetch(&access, get(format!("https://localhost:{port}/x"))).await.expect("an answer");
            assert!(
                text(&response).lines().next().is_some_and(|line| line.ends_with(version)),
                "{}",
                text(&response)
            );
        }
    }
}

#[tokio::test]
async fn dropping_an_exchange_resets_its_stream_and_keeps_the_connection() {
    const PIECES: usize = 1024;
    let (long, made) = long_body(PIECES);
    let server = Server::start_with(acceptor(&["h2"]), once(long)).await;
    let url = format!("https://localhost:{}/", server.address.port());
    let mut access = access(&[&format!("GET {url}")]);
    access.bounds.stream_bytes = usize::MAX;
    let egress = egress(authority());
    let mut exchange = egress.open(&access, get(&url)).await.expect("headers");
    assert!(exchange.read(100).await.expect("bytes").is_some());
    let other = egress.fetch(&access, get(&url)).await.expect("an answer beside a stream that nobody reads");
    assert_eq!(other.status, 200);
    drop(exchange);
    let made = made.await.expect("the server's body was dropped");
    assert!(made < PIECES / 4, "{made} MiB were made for 100 bytes read");
    egress.fetch(&access, get(&url)).await.expect("an answer");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_untrusted_certificate_is_rejected() {
    let server = server(&["h2"]).await;
    let url = format!("https://localhost:{}/", server.address.port());
    // The server's own certificate is not the authority that signed it, only something to trust that does not help.
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate")).expect("a root");
    let egress = egress(Roots::Given(Arc::new(roots)));
    let error = fails(egress.fetch(&access(&[&format!("GET {url}")]), get(&url)).await, ErrorKind::Tls);
    assert!(error.message().ends_with(&format!("(localhost:{})", server.address.port())), "{error}");
    assert_eq!(server.requests(), 0, "a request went to an untrusted server");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_rejected() {
    let server = server(&["h2"]).await;
    let url = format!("https://{}/", server.address);
    let error =
        fails(egress(authority()).fetch(&access(&[&format!("GET {url}")]), get(&url)).await, ErrorKind::Tls);
    assert_eq!(error.message(), format!("the certificate is for another name ({})", server.address));
    assert_eq!(server.requests(), 0, "a request went to another server");
}

#[tokio::test]
async fn the_error_says_that_a_server_does_not_speak_tls() {
    let server = Server::start(|_request| async { http::Response::new(body("plain")) }).await;
    let url = format!("https://{}/", server.address);
    let error =
        fails(egress(authority()).fetch(&access(&[&format!("GET {url}")]), get(&url)).await, ErrorKind::Tls);
    assert_eq!(
        error.message(),
        format!("the server does not speak TLS; is it http://? ({})", server.address)
    );
}

#[tokio::test]
async fn without_root_certificates_the_error_names_the_fix() {
    let server = server(&["h2"]).await;
    let url = format!("https://localhost:{}/", server.address.port());
    let roots = Roots::Given(Arc::new(RootCertStore::empty()));
    let error =
        fails(egress(roots).fetch(&access(&[&format!("GET {url}")]), get(&url)).await, ErrorKind::Tls);
    assert_eq!(error.message(), "no root certificates found; install ca-certificates or set SSL_CERT_FILE");
    assert_eq!(server.connections(), 0, "a connection was made in vain");
}

#[tokio::test]
async fn plain_http_needs_no_roots() {
    let server = Server::start(echo).await;
    let roots = Roots::Given(Arc::new(RootCertStore::empty()));
    let response =
        egress(roots).fetch(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("an answer");
    assert_eq!(response.status, 200);
}
