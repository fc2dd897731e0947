//! Calls the URL of its prompt by `wasi:http`, or prints by `wasi:cli`, as a program does that does not know the contract. For the host's tests.

use std::io::{self, Write as _};

use talaria_guest::{Description, Executor, Failure, Needs, Outcome, Turn};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{Fields, Method, OutgoingBody, OutgoingRequest, Scheme};

struct WasiFetch;

impl Executor for WasiFetch {
    fn describe() -> Description {
        Description {
            settings_schema:
                r#"{"properties":{"base_url":{"type":"string","default":"http://127.0.0.1:9"}}}"#.into(),
            needs: Needs {
                egress: vec!["* {setting:base_url}/*".into()],
                secrets: vec!["PROBE_KEY".into()],
                callbacks: false,
            },
            ..Description::new("wasi-fetch", env!("CARGO_PKG_VERSION"), "Calls out by wasi:http")
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        // `METHOD URL [BODY]`, or `STDOUT COUNT TEXT`, which prints.
        let mut words = turn.text.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (method, url, body) = (word(), word(), word());
        if method == "STDOUT" {
            for _ in 0..url.parse().unwrap_or(0) {
                let _ = writeln!(io::stdout(), "{body}");
            }
            let _ = write!(io::stderr(), "{body}");
            return Ok(Outcome::text("printed"));
        }
        Ok(Outcome::text(fetch(method, url, body).unwrap_or_else(|error| error)))
    }
}

fn fetch(method: &str, url: &str, body: &str) -> Result<String, String> {
    let (authority, path) = url.trim_start_matches("http://").split_once('/').unwrap_or_default();
    let headers = [("authorization".to_owned(), b"Bearer {secret:PROBE_KEY}".to_vec())];
    let headers = if body == "with-key" { Fields::from_list(&headers) } else { Ok(Fields::new()) };
    let request = OutgoingRequest::new(headers.map_err(|error| format!("{error:?}"))?);
    let no = |()| "refused".to_owned();
    request.set_method(&Method::Other(method.into())).map_err(no)?;
    request.set_scheme(Some(&Scheme::Http)).map_err(no)?;
    request.set_authority(Some(authority)).map_err(no)?;
    request.set_path_with_query(Some(&format!("/{path}"))).map_err(no)?;
    let sent = request.body().map_err(no)?;
    let answer = handle(request, None).map_err(|error| format!("{error:?}"))?;
    if !body.is_empty() {
        let stream = sent.write().map_err(no)?;
        stream.blocking_write_and_flush(body.as_bytes()).map_err(|error| format!("{error:?}"))?;
    }
    OutgoingBody::finish(sent, None).map_err(|error| format!("{error:?}"))?;
    answer.subscribe().block();
    let response = match answer.get() {
        Some(Ok(response)) => response.map_err(|error| format!("{error:?}"))?,
        _ => return Err("no answer".into()),
    };
    let body = response.consume().map_err(no)?;
    let stream = body.stream().map_err(no)?;
    let mut text = Vec::new();
    while let Ok(piece) = stream.blocking_read(64 << 10) {
        text.extend(piece);
    }
    Ok(format!("{} {}", response.status(), String::from_utf8_lossy(&text)))
}

talaria_guest::export!(WasiFetch);
