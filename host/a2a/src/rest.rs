//! The HTTP+JSON binding: the path names the operation, the body or the query holds its parameters, and the status tells the
//! result.
//!
//! Operations and fields are those of JSON-RPC, without the envelope. The body may repeat what the path says, but not
//! contradict it. An answer has the media type of the request, `application/json` or `application/a2a+json`. An error, or the
//! answer to a request without a body, has the media type that `Accept` names, or `application/json`.

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value};
use talaria_budget::Charge;

use crate::capabilities::Capabilities;
use crate::dialect::InDialect;
use crate::json_fields::{Fields, Path};
use crate::open_stream::Streaming;
use crate::operation::{Reply, Request, Verb};
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::{self, Body, JSON};
use crate::route::{self, Rest};
use crate::service_params::ServiceParams;
use crate::sse::{self, Envelope};
use crate::{body, jsonrpc, memory, params, version};

/// The media type that 1.0 prefers.
const A2A_JSON: &str = "application/a2a+json";

/// Whether the answer, and an error, have the media type of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Media {
    answer: bool,
    error: bool,
}

// === impl Media ===

impl Media {
    /// Reads what a request asks for.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let names_it = |name| {
            let values =
                headers.get_all(name).into_iter().filter_map(|value: &HeaderValue| value.to_str().ok());
            values.flat_map(|value| value.split(',')).any(|value| {
                value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(A2A_JSON)
            })
        };
        let accepts = names_it(ACCEPT);
        Self { answer: accepts || names_it(CONTENT_TYPE), error: accepts }
    }

    fn value(is_a2a: bool) -> HeaderValue {
        if is_a2a { HeaderValue::from_static(A2A_JSON) } else { JSON }
    }
}

/// Checks what needs no body: the version, and that the card offers the operation.
pub(crate) fn admit(
    capabilities: &Capabilities,
    rest: &Rest,
    verb: Verb,
    params: &ServiceParams,
) -> Result<(), Rejection> {
    let version = rest.dialect.version();
    if !version.admits(params.version()) {
        return Err(version::mismatch("this path belongs to", version, params.version()));
    }
    capabilities.admit(verb, &params.extensions)
}

/// Decodes a request. `body` is that of a POST, and `None` for the other methods.
pub(crate) fn read(
    capabilities: &Capabilities,
    rest: &Rest,
    verb: Verb,
    head: &Parts,
    body: Option<&[u8]>,
    charge: &mut Charge,
) -> Result<Request, Rejection> {
    let after = params::last_event(&head.headers)?;
    let mut fields = match body {
        None => Fields::of_query(route::query(head.uri.query())),
        Some([]) => Fields::of(Value::Object(Map::new()), Path::Root)?,
        Some(_) if !jsonrpc::is_json(&head.headers) => return Err(Rejection::body_not_json()),
        Some(body) => Fields::of(body::parse(body, charge)?, Path::Root)?,
    };
    // The task in a path is `id`, except in requests about push configurations.
    if let Some(task) = &rest.task {
        fields.bind(if verb.is_about_push() { "taskId" } else { "id" }, task)?;
    }
    if let Some(config) = &rest.push_config {
        fields.bind("id", config)?;
    }
    if let Some(tenant) = &rest.tenant {
        fields.bind("tenant", tenant)?;
    }
    params::read(capabilities, rest.dialect, verb, fields, after)
}

/// Encodes the response, and returns the code of an error for the access log.
pub(crate) fn respond(
    rest: &Rest,
    media: Media,
    reply: Result<Reply, Rejection>,
    streaming: &Streaming,
) -> (Response<Body>, Option<i32>) {
    let dialect = rest.dialect;
    let written = match reply {
        Ok(Reply::Stream(updates)) => Ok(sse::respond(*updates, dialect, Envelope::Rest, streaming)),
        Ok(Reply::Once(answer)) => serde_json::to_vec(&InDialect(dialect, &answer))
            .map(|body| {
                let body = memory::hold(&streaming.budget, body);
                respond::typed(StatusCode::OK, Media::value(media.answer), body)
            })
            .map_err(|error| {
                tracing::warn!(%error, "answer could not be encoded");
                Rejection::new(ErrorKind::Internal, "the answer could not be written")
            }),
        Err(rejection) => Err(rejection),
    };
    let (mut response, version, code) = match written {
        Ok(response) => (response, Some(dialect.version()), None),
        Err(rejection) => {
            let (status, _) = rejection.kind.rest_status();
            let body = rejection.rest_body(dialect.version()).to_string();
            let mut response = respond::typed(status, Media::value(media.error), body);
            respond::retry(&mut response, &rejection);
            let spoken = (rejection.kind != ErrorKind::VersionNotSupported).then_some(dialect.version());
            (response, spoken, Some(rejection.kind.code()))
        }
    };
    respond::versioned(&mut response, version);
    // A task is private to its owner and changes at any time.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (response, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_media_type_of_the_request() {
        let of = |content_type: &'static str, accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let Media { answer, error } = Media::of(&headers);
            (answer, error)
        };
        assert_eq!(of("application/json", "*/*"), (false, false));
        assert_eq!(of("application/a2a+json; charset=utf-8", "*/*"), (true, false));
        assert_eq!(of("application/json", "text/html, Application/A2A+JSON;q=1"), (true, true));
    }
}
