//! The reason that users read if an upstream is unreachable.

use std::time::Duration;

use talaria_egress::{Config, Egress, ErrorKind};
use tokio::net::TcpListener;

use crate::{PATIENCE, access, egress, fails, get};

#[tokio::test]
async fn the_error_says_that_the_connection_was_refused() {
    let address = format!("127.0.0.1:{}", talaria_fakes::free_port());
    let access = access(&[&format!("GET http://{address}/")]);
    let error = fails(egress().fetch(&access, get(format!("http://{address}/"))).await, ErrorKind::Connect);
    assert_eq!(error.message(), format!("connection refused ({address})"));
}

#[tokio::test]
async fn the_error_says_that_the_name_is_unknown() {
    // Where no name server can be reached, it is the resolver that gives up, after some time.
    let egress = Egress::new(Config { connect_timeout: PATIENCE, ..Config::default() });
    let access = access(&["GET http://foo.invalid/"]);
    let error = fails(egress.fetch(&access, get("http://foo.invalid/")).await, ErrorKind::Dns);
    assert_eq!(error.message(), "name not found (foo.invalid)");
}

#[tokio::test]
async fn the_error_says_that_connecting_timed_out() {
    // TLS to a server that never answers the handshake: the connect timeout covers that step too.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let egress = Egress::new(Config {
        connect_timeout: Duration::from_millis(50),
        roots: crate::tls::authority(),
        ..Config::default()
    });
    let access = access(&[&format!("GET https://{address}/")]);
    let error = fails(egress.fetch(&access, get(format!("https://{address}/"))).await, ErrorKind::Connect);
    assert_eq!(error.message(), format!("connecting timed out after 50ms ({address})"));
}
