//! The host alone handles the headers of the connection, both ways.

use talaria_egress::{Bounds, ErrorKind};

use crate::server::{Server, body, echo, raw};
use crate::{access, egress, fails, get, text, with_header};

#[tokio::test]
async fn headers_of_the_connection_are_rejected() {
    let server = Server::start(echo).await;
    let access = access(&[&server.pattern()]);
    for name in [
        "Host",
        "connection",
        "Transfer-Encoding",
        "content-length",
        "upgrade",
        "TE",
        "trailer",
        "proxy-authorization",
        "Proxy-Connection",
        "keep-alive",
        "expect",
        "http2-settings",
    ] {
        let request = with_header(get(server.url("/")), name, "x");
        let error = fails(egress().fetch(&access, request).await, ErrorKind::InvalidRequest);
        assert_eq!(error.message(), format!("header {} is set by the host; remove it", name.to_lowercase()));
    }
    for (name, value) in [("x y", "1"), ("", "1"), ("x", "a\r\nhost: evil"), ("x", "a\0")] {
        fails(
            egress().fetch(&access, with_header(get(server.url("/")), name, value)).await,
            ErrorKind::InvalidRequest,
        );
    }
    assert_eq!(server.connections(), 0, "a refused header reached the server");
}

#[tokio::test]
async fn other_headers_pass_in_order_and_more_than_once() {
    let server = Server::start(echo).await;
    let mut request = get(server.url("/"));
    for (name, value) in [("accept", "x/y"), ("x-a", "1"), ("x-a", "2"), ("cookie", "c=d"), ("x-u", "ü")] {
        request = with_header(request, name, value);
    }
    let response = egress().fetch(&access(&[&server.pattern()]), request).await.expect("an answer");
    let sent = "accept: x/y\nx-a: 1\nx-a: 2\ncookie: c=d\nx-u: ü\n";
    assert!(text(&response).contains(sent), "{}", text(&response));
}

#[tokio::test]
async fn the_host_decides_the_form_and_the_part_of_an_answer() {
    let server = Server::start(echo).await;
    let mut request = get(server.url("/"));
    for (name, value) in
        [("Accept-Encoding", "gzip"), ("accept-charset", "utf-16"), ("range", "bytes=7-8"), ("if-range", "x")]
    {
        request = with_header(request, name, value);
    }
    let response = egress().fetch(&access(&[&server.pattern()]), request).await.expect("an answer");
    for name in ["accept-encoding", "accept-charset", "range"] {
        assert!(!text(&response).contains(name), "{}", text(&response));
    }
}

#[tokio::test]
async fn guests_read_no_connection_headers_and_no_cookies() {
    let server = raw(
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive, x-hop\r\nkeep-alive: 5\r\nx-hop: 1\r\n\
          set-cookie: a=b\r\nproxy-authenticate: Basic\r\nx-bad: \xff\r\nx-good: \xc3\xbc\r\nX-Two: 1\r\nx-two: 2\r\n\r\n",
    )
    .await;
    let access = access(&[&server.pattern()]);
    let response = egress().fetch(&access, get(server.url())).await.expect("an answer");
    let seen: Vec<_> = response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(seen, [("content-length", "0"), ("x-good", "ü"), ("x-two", "1"), ("x-two", "2")]);
}

#[tokio::test]
async fn headers_are_bounded_both_ways() {
    let server = Server::start(|_request| async {
        let mut answer = http::Response::builder();
        for index in 0..20 {
            answer = answer.header(format!("x-{index}"), "y".repeat(100));
        }
        answer.body(body("")).expect("an answer")
    })
    .await;
    let mut access = access(&[&server.pattern()]);
    let bounds = access.bounds;

    access.bounds = Bounds { headers: 10, ..bounds };
    fails(egress().fetch(&access, get(server.url("/"))).await, ErrorKind::TooLarge);
    access.bounds = Bounds { header_bytes: 1000, ..bounds };
    fails(egress().fetch(&access, get(server.url("/"))).await, ErrorKind::TooLarge);
    let long = with_header(get(server.url("/")), "x", &"y".repeat(1000));
    fails(egress().fetch(&access, long).await, ErrorKind::InvalidRequest);
    access.bounds = Bounds { headers: 1, ..bounds };
    let two = with_header(with_header(get(server.url("/")), "x", "1"), "y", "2");
    fails(egress().fetch(&access, two).await, ErrorKind::InvalidRequest);

    access.bounds = bounds;
    assert_eq!(egress().fetch(&access, get(server.url("/"))).await.expect("an answer").status, 200);
}

#[tokio::test]
async fn endless_headers_are_stopped_by_the_client() {
    let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
    for index in 0..200 {
        answer.extend(format!("x-{index}: y\r\n").bytes());
    }
    answer.extend(b"\r\n");
    let many = raw(answer).await;
    let access_many = access(&[&many.pattern()]);
    fails(egress().fetch(&access_many, get(many.url())).await, ErrorKind::TooLarge);

    let mut answer = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
    answer.resize(4 << 20, b'y');
    let long = raw(answer).await;
    let access_long = access(&[&long.pattern()]);
    fails(egress().fetch(&access_long, get(long.url())).await, ErrorKind::TooLarge);
}
