//! Connections on workers: threads with a runtime of their own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use talaria_listen::{Advice, Door, Limits, Workers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The longest that any step of a test may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server whose responses are the names of the threads that answer.
struct Server {
    address: SocketAddr,
    workers: Workers,
    tasks: TaskTracker,
    serving: JoinHandle<()>,
    shutdown: CancellationToken,
    /// How many requests for `/wait` wait.
    waiting: Arc<Semaphore>,
    /// Lets them go on.
    go: Arc<Semaphore>,
}

type Client = SendRequest<Full<Bytes>>;

impl Server {
    async fn start(workers: usize, grace: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let workers = Workers::start(workers, Handle::current()).unwrap();
        let limits = Limits {
            connections: 100,
            busy: StatusCode::TOO_MANY_REQUESTS,
            header_timeout: PATIENCE,
            stall: PATIENCE,
            grace,
        };
        let (waiting, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let state = (Arc::clone(&waiting), Arc::clone(&go));
        let handle = move |request: Request<Incoming>| {
            let (waiting, go) = state.clone();
            async move {
                match request.uri().path() {
                    "/wait" => {
                        waiting.add_permits(1);
                        go.acquire().await.unwrap().forget();
                    }
                    "/panic" => panic!("as asked"),
                    _ => drop(request.into_body().collect().await.unwrap()),
                }
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                Response::new(Full::new(Bytes::from(name)))
            }
        };
        let door = Door::local([], Advice { host: "", origin: "" }, |refusal| refusal.response());
        let (spread, stop) = (workers.spread(), shutdown.clone());
        let serving = tasks
            .spawn(async move { spread.serve(listener, limits, door, Arc::default(), stop, handle).await });
        Self { address, workers, tasks, serving, shutdown, waiting, go }
    }

    async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        self.tasks.spawn(async { drop(connection.await) });
        client
    }

    /// The name of the thread that answers, or what went wrong.
    async fn ask(&self, client: &mut Client, path: &str, body: usize) -> Result<String, hyper::Error> {
        let body = Full::new(Bytes::from(vec![b' '; body]));
        let request = Request::post(path).header("host", self.address.to_string()).body(body).unwrap();
        let response = timeout(PATIENCE, client.send_request(request)).await.unwrap()?;
        let body = timeout(PATIENCE, response.into_body().collect()).await.unwrap()?;
        Ok(String::from_utf8(body.to_bytes().into()).unwrap())
    }
}

#[tokio::test]
async fn connections_are_spread_evenly_and_stay_on_their_worker() {
    let server = Server::start(3, PATIENCE).await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = server.connect().await;
        let worker = server.ask(&mut client, "/", 0).await.unwrap();
        clients.push((client, worker));
    }
    let mut connections = BTreeMap::new();
    for (client, worker) in &mut clients {
        *connections.entry(worker.clone()).or_insert(0) += 1;
        for _ in 0..3 {
            assert_eq!(&server.ask(client, "/", 10).await.unwrap(), worker);
        }
    }
    let expected = ["worker-0", "worker-1", "worker-2"].map(|worker| (worker.to_owned(), 2));
    assert_eq!(connections, BTreeMap::from(expected));
}

#[tokio::test]
async fn a_large_body_holds_up_no_worker() {
    let server = Server::start(1, PATIENCE).await;
    let mut client = server.connect().await;
    assert_eq!(server.ask(&mut client, "/", 64 << 10).await.unwrap(), "worker-0");
    let answered_by = server.ask(&mut client, "/", (64 << 10) + 1).await.unwrap();
    assert_eq!(
        Some(answered_by.as_str()),
        std::thread::current().name(),
        "the test's runtime is the shared one"
    );
}

#[tokio::test]
async fn a_panic_ends_its_connection_and_not_its_worker() {
    let server = Server::start(1, PATIENCE).await;
    let mut other = server.connect().await;
    for body in [0, 100 << 10] {
        let mut client = server.connect().await;
        server.ask(&mut client, "/panic", body).await.unwrap_err();
        assert_eq!(server.ask(&mut other, "/", 0).await.unwrap(), "worker-0");
    }
}

#[tokio::test]
async fn a_stop_answers_the_request_on_each_worker_first() {
    let server = Server::start(2, PATIENCE).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    let stop = async {
        server.waiting.acquire_many(2).await.unwrap().forget();
        server.shutdown.cancel();
        server.go.add_permits(2);
    };
    let (first, second, ()) =
        tokio::join!(server.ask(&mut first, "/wait", 0), server.ask(&mut second, "/wait", 0), stop);
    let mut answered = [first.unwrap(), second.unwrap()];
    answered.sort();
    assert_eq!(answered, ["worker-0", "worker-1"]);
    timeout(PATIENCE, server.serving).await.unwrap().unwrap();
    server.workers.stop();
}

#[tokio::test]
async fn requests_that_outlast_the_grace_period_are_cut_on_each_worker() {
    let server = Server::start(2, Duration::ZERO).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    let stop = async {
        server.waiting.acquire_many(2).await.unwrap().forget();
        server.shutdown.cancel();
    };
    let (first, second, ()) =
        tokio::join!(server.ask(&mut first, "/wait", 0), server.ask(&mut second, "/wait", 0), stop);
    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
    timeout(PATIENCE, server.serving).await.unwrap().unwrap();
    server.workers.stop();
}

#[tokio::test]
async fn the_end_of_the_workers_closes_what_is_left_on_them() {
    let server = Server::start(2, PATIENCE).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.readable().await.unwrap();
    server.workers.stop();
    let mut answer = String::new();
    let ended = timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{ended:?} {answer}");
}
