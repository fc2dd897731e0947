//! What an agent answers: a document of JSON, an answer of JSON-RPC, or an error of either binding.
//!
//! Agents, and what stands before them, answer with web pages, redirects and answers to other requests. Each is a fault
//! that says what it was.

use serde_json::Value;
use talaria_guest::http;
use talaria_upstream::{excerpt, is_success};

use crate::fault::{Fault, TASK_NOT_CANCELABLE, TASK_NOT_FOUND, UNSUPPORTED};
use crate::peer::location;

/// What an answer is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Id {
    /// The id of a JSON-RPC request.
    Of(u32),
    /// HTTP+JSON has no ids: an answer belongs to its exchange.
    None,
}

/// Reads a response that is a JSON document.
pub(crate) fn document(response: &http::Response) -> Result<Value, Fault> {
    parse(response.status, &response.headers, &response.body)
}

/// Reads a response that is the answer to a request.
pub(crate) fn envelope(response: &http::Response, id: &Id) -> Result<Value, Fault> {
    body(response.status, &response.headers, &response.body, id)
}

/// Reads the body of a response that is the answer to a request.
pub(crate) fn body(status: u16, headers: &[http::Header], body: &[u8], id: &Id) -> Result<Value, Fault> {
    // Errors of JSON-RPC come with any status.
    if !is_success(status) {
        return Err(refusal(body).unwrap_or_else(|| failed(status, headers, body)));
    }
    result(parse(status, headers, body)?, id)
}

/// Reads an answer: the result of JSON-RPC, or the object itself of HTTP+JSON.
pub(crate) fn result(mut answer: Value, id: &Id) -> Result<Value, Fault> {
    if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
        return Err(refused(error));
    }
    let Id::Of(id) = id else { return Ok(answer) };
    match answer.get("id") {
        Some(found) if found.as_u64() == Some(u64::from(*id)) => {}
        found => {
            let found = found.map_or_else(|| "none".to_owned(), |found| excerpt(&found.to_string()));
            return Err(Fault::Nonsense(format!(
                "it answered another request than it was asked: the id is {found} and not {id}"
            )));
        }
    }
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(Fault::Nonsense("its answer has neither a result nor an error".into())),
    }
}

fn parse(status: u16, headers: &[http::Header], body: &[u8]) -> Result<Value, Fault> {
    if !is_success(status) {
        return Err(failed(status, headers, body));
    }
    serde_json::from_slice(body).map_err(|_| {
        let kind = headers
            .iter()
            .find(|(name, _)| name == "content-type")
            .map_or("no media type", |(_, value)| value);
        let start = excerpt(&String::from_utf8_lossy(body.get(..200).unwrap_or(body)));
        Fault::Nonsense(format!("it answered {} that is not JSON: {}", excerpt(kind), start.trim()))
    })
}

fn failed(status: u16, headers: &[http::Header], body: &[u8]) -> Fault {
    let text = String::from_utf8_lossy(body.get(..8_192).unwrap_or(body)).into_owned();
    let location = (300..400).contains(&status).then(|| location(headers)).flatten();
    Fault::Status { status, text, location }
}

/// The error of the protocol in the body of a failed response.
fn refusal(body: &[u8]) -> Option<Fault> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let error = answer.get("error")?;
    // Other servers have an `error` too, as a text.
    error.get("code")?.as_i64()?;
    match refused(error) {
        // Not an error of the protocol, but the status once more.
        Fault::Refused { code: 401 | 403 | 408 | 429 | 500..=599, .. } => None,
        fault => Some(fault),
    }
}

/// The error of JSON-RPC, or that of HTTP+JSON, whose reason has a code in JSON-RPC.
fn refused(error: &Value) -> Fault {
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    let reasons = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let reason = reasons.filter_map(|detail| detail.get("reason")?.as_str()).next();
    let code = match reason {
        Some("TASK_NOT_FOUND") => Some(TASK_NOT_FOUND),
        Some("TASK_NOT_CANCELABLE") => Some(TASK_NOT_CANCELABLE),
        Some("UNSUPPORTED_OPERATION") => Some(UNSUPPORTED),
        _ => error.get("code").and_then(Value::as_i64),
    };
    Fault::Refused { code: code.unwrap_or_default(), message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, kind: &str, text: &str, id: Id) -> Result<Value, String> {
        let headers =
            [("content-type".to_owned(), kind.to_owned()), ("location".to_owned(), "/x".to_owned())];
        body(status, &headers, text.as_bytes(), &id)
            .map_err(|fault| talaria_guest::Failure::from(fault).message)
    }

    #[test]
    fn an_answer_is_a_result_or_a_sentence() {
        let rpc = |text: &str| read(200, "application/json", text, Id::Of(7));
        assert_eq!(rpc(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#), Ok(json!({ "a": 1 })));
        for (text, why) in [
            (
                r#"{"id":8,"result":{}}"#,
                "[agent error] it answered another request than it was asked: the id is 8 and not 7",
            ),
            (
                r#"{"result":{}}"#,
                "[agent error] it answered another request than it was asked: the id is none and not 7",
            ),
            (r#"{"id":7}"#, "[agent error] its answer has neither a result nor an error"),
            (r#"{"id":null,"error":{"code":-32700,"message":"bad"}}"#, "[agent error -32700] bad"),
            (
                "<html>hi</html>",
                "[agent error] it answered application/json that is not JSON: <html>hi</html>",
            ),
        ] {
            assert_eq!(rpc(text), Err(why.into()), "{text}");
        }
        assert_eq!(read(200, "application/json", r#"{"task":{}}"#, Id::None), Ok(json!({ "task": {} })));
    }

    #[test]
    fn a_failed_response_is_an_error_of_the_protocol_only_if_it_says_so() {
        let rest = |status, text: &str| read(status, "application/json", text, Id::None).unwrap_err();
        let not_found = r#"{"error":{"code":404,"message":"no","details":[{"reason":"TASK_NOT_FOUND"}]}}"#;
        for (status, text, why) in [
            (404, not_found, "[agent error -32001] no"),
            (400, r#"{"error":{"code":400,"message":"bad"}}"#, "[agent error 400] bad"),
            (404, r#"{"error":"nope"}"#, r#"[agent error 404] {"error":"nope"}"#),
            (
                503,
                r#"{"error":{"code":503,"message":"later"}}"#,
                r#"[agent error 503] {"error":{"code":503,"message":"later"}}"#,
            ),
            (500, "<html>", "[agent error 500] <html>"),
            (
                302,
                "",
                "[agent error 302] it redirects to /x, and redirects are not followed; set `url` to where the agent is",
            ),
        ] {
            assert_eq!(rest(status, text), why, "{status} {text}");
        }
    }
}
