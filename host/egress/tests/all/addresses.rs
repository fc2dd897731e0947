//! A granted name leads only to addresses that the grant allows, whatever it resolves to and whenever that changes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use talaria_egress::{Access, Config, Egress, ErrorKind, Names};

use crate::server::{Answer, Server, body};
use crate::{access, fails, get, text};

/// A name server that says what it is told to say, and counts how often it was asked.
#[derive(Clone, Default)]
struct Resolver {
    answer: Arc<Mutex<Vec<IpAddr>>>,
    asked: Arc<AtomicUsize>,
}

impl Resolver {
    fn answering(addresses: &[&str]) -> Self {
        let resolver = Self::default();
        resolver.answer(addresses);
        resolver
    }

    fn answer(&self, addresses: &[&str]) {
        *self.answer.lock().unwrap() = addresses.iter().map(|address| address.parse().unwrap()).collect();
    }

    fn egress(&self) -> Egress {
        let resolver = self.clone();
        let names = Names::Given(Arc::new(move |_name| {
            resolver.asked.fetch_add(1, Ordering::SeqCst);
            resolver.answer.lock().unwrap().clone()
        }));
        Egress::new(Config { names, ..Config::default() })
    }
}

async fn inside() -> Server {
    Server::start(|_request| async { Answer::new(body("inside")) }).await
}

fn granted(port: u16, private: &[&str]) -> Access {
    Access {
        private: private.iter().map(|host| host.parse().unwrap()).collect(),
        ..access(&[
            format!("GET http://*.example:{port}/*").as_str(),
            &format!("GET http://localhost:{port}/*"),
        ])
    }
}

#[tokio::test]
async fn a_granted_name_that_leads_to_a_special_address_is_denied() {
    let server = inside().await;
    let (port, url) = (server.address.port(), format!("http://a.example:{}/x", server.address.port()));
    for (addresses, special, add) in [
        (&["127.0.0.1"][..], "a loopback address", "private = [\"a.example\"]"),
        (&["::1"], "a loopback address", "private = [\"a.example\"]"),
        (&["10.1.2.3", "192.168.0.1"], "a private address", "private = [\"a.example\"]"),
        (&["::ffff:127.0.0.1"], "a loopback address", "private = [\"a.example\"]"),
        (&["169.254.169.254"], "a metadata service", "the address itself"),
        (&["169.254.0.1"], "a link-local address", "the address itself"),
        (&["0.0.0.0"], "an unspecified address", "the address itself"),
    ] {
        let egress = Resolver::answering(addresses).egress();
        let error = fails(egress.fetch(&granted(port, &[]), get(&url)).await, ErrorKind::Denied);
        assert!(error.message().contains(&format!("connect to {special} (a.example)")), "{error}");
        assert!(error.message().contains(add), "{error}");
        let error = egress.fetch(&granted(port, &["b.example"]), get(&url)).await;
        fails(error, ErrorKind::Denied);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_private_name_leads_into_private_networks_but_never_to_a_metadata_service() {
    let server = inside().await;
    let url = format!("http://a.example:{}/x", server.address.port());
    let resolver = Resolver::answering(&["127.0.0.1"]);
    for private in ["a.example", "*.example"] {
        let egress = resolver.egress();
        let response = egress.fetch(&granted(server.address.port(), &[private]), get(&url)).await.unwrap();
        assert_eq!(text(&response), "inside");
    }
    resolver.answer(&["169.254.169.254"]);
    let denied = resolver.egress().fetch(&granted(server.address.port(), &["a.example"]), get(&url)).await;
    fails(denied, ErrorKind::Denied);
    resolver.answer(&["127.0.0.1"]);
    let local = get(format!("http://localhost:{}/x", server.address.port()));
    assert_eq!(
        text(&resolver.egress().fetch(&granted(server.address.port(), &[]), local).await.unwrap()),
        "inside"
    );
}

/// The address that was judged is the one connected to: there is no second lookup to answer differently.
#[tokio::test]
async fn a_name_that_resolves_differently_the_next_time_is_checked_again() {
    let server = inside().await;
    let url = format!("http://a.example:{}/x", server.address.port());
    let resolver = Resolver::answering(&["127.0.0.1"]);
    let egress = resolver.egress();
    let trusted = granted(server.address.port(), &["a.example"]);
    egress.fetch(&trusted, get(&url)).await.unwrap();
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1, "one lookup for one connection");

    // Another executor, without that grant: the pooled connection is not for it, and the name is judged for it anew.
    fails(egress.fetch(&granted(server.address.port(), &[]), get(&url)).await, ErrorKind::Denied);
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 2);

    // Of a mixed answer only what is allowed is tried.
    resolver.answer(&["169.254.169.254", "127.0.0.1"]);
    assert_eq!(text(&resolver.egress().fetch(&trusted, get(&url)).await.unwrap()), "inside");
}

#[tokio::test]
async fn a_literal_address_needs_a_grant_that_contains_it() {
    let server = inside().await;
    let url = format!("http://127.0.0.1:{}/x", server.address.port());
    let egress = Resolver::default().egress();
    let spelled = access(&[format!("GET {url}").as_str()]);
    assert_eq!(text(&egress.fetch(&spelled, get(&url)).await.unwrap()), "inside");
    for other in [
        format!("http://127.0.0.2:{}/x", server.address.port()),
        format!("http://[::1]:{}/x", server.address.port()),
    ] {
        fails(egress.fetch(&spelled, get(other)).await, ErrorKind::Denied);
    }
    fails(egress.fetch(&spelled, get("http://169.254.169.254/latest/meta-data/")).await, ErrorKind::Denied);
}
