//! Runtimes with connections of their own.

use std::sync::Arc;

use talaria_egress::{Access, Config, Egress};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::server::{Server, body, long_body};
use crate::{access, get};

/// A runtime with one thread; both end when this is dropped.
struct OneThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl OneThread {
    fn start() -> Self {
        let (stop, stopped) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(stopped));
        Self { runtime: handle, _stop: stop }
    }

    /// Makes calls from here, one after the other.
    async fn call(&self, egress: &Egress, access: &Arc<Access>, url: String, times: usize) {
        let (egress, access) = (egress.clone(), Arc::clone(access));
        let calls = async move {
            for _ in 0..times {
                egress.fetch(&access, get(url.as_str())).await.expect("an answer");
            }
        };
        self.runtime.spawn(calls).await.expect("no panic");
    }
}

fn egress(runtimes: &[&OneThread]) -> Egress {
    let runtimes = runtimes.iter().map(|thread| thread.runtime.id()).collect();
    Egress::new(Config { runtimes, ..Config::default() })
}

#[tokio::test]
async fn each_runtime_uses_its_own_connections_again() {
    let server = Server::start(|_request| async { http::Response::new(body("x")) }).await;
    let (first, second) = (OneThread::start(), OneThread::start());
    let (egress, access) = (egress(&[&first, &second]), Arc::new(access(&[&server.pattern()])));
    first.call(&egress, &access, server.url("/"), 10).await;
    let of_first = server.connections();
    assert!(of_first < 10, "{of_first} connections for 10 calls");
    second.call(&egress, &access, server.url("/"), 1).await;
    assert_eq!(server.connections(), of_first + 1, "an idle connection of the first is not for the second");
    egress.fetch(&access, get(server.url("/"))).await.expect("an answer");
    assert_eq!(server.connections(), of_first + 2, "nor for any other runtime");
}

#[tokio::test]
async fn a_call_that_moves_to_another_runtime_goes_on() {
    let server = Server::start(|_request| async { http::Response::new(long_body(4).0) }).await;
    let thread = OneThread::start();
    let (egress, access) = (egress(&[&thread]), access(&[&server.pattern()]));
    let url = server.url("/");
    let opened = thread.runtime.spawn(async move { egress.open(&access, get(url)).await });
    let mut exchange = opened.await.expect("no panic").expect("headers");
    let mut read = 0;
    while let Some(bytes) = exchange.read(64 << 10).await.expect("bytes") {
        read += bytes.len();
    }
    assert_eq!(read, 4 << 20);
}
