//! The parsers, for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! Every function calls a parser or an encoder as the server does and checks nothing; the targets assert what must hold.

use std::sync::{Arc, LazyLock};

use http::{HeaderMap, Method, Request, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_budget::Budget;
use talaria_turns::{Place, Principal, PushConfig, Task, TaskId, Timestamp};

use crate::auth::{Auth, Token};
use crate::capabilities::Capabilities;
use crate::card::{Addresses, Card, CardConfig, GrpcAddress};
use crate::dialect::InDialect;
use crate::grpc;
use crate::json_fields::{Fields, Path};
use crate::jsonrpc::Call;
use crate::operation::{Answer, Sent, Verb, View};
use crate::push::PushConfigOut;
use crate::rejection::{ErrorKind, Rejection};
use crate::route::Route;
use crate::service_params::ServiceParams;
use crate::{body, page_token, params, push, rest as binding, rfc3339, route, version};

pub use crate::dialect::Dialect;
pub use crate::operation::{Addressed, Operation};
pub use crate::route::Rest;
pub use crate::version::Version;

/// Offers everything, so that every parser is reached.
static OFFERED: LazyLock<Capabilities> = LazyLock::new(|| {
    let card = CardConfig { extended_card: true, push_notifications: true, ..CardConfig::default() };
    Capabilities::new(&card)
});

/// Declares a body as JSON unless the input says otherwise, so that every parser is reached.
fn declared(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.entry(http::header::CONTENT_TYPE).or_insert(crate::respond::JSON);
    headers
}

pub fn json(body: &[u8]) -> Option<Value> {
    body::parse(body, &mut Budget::unlimited().nothing()).ok()
}

/// Decodes a JSON-RPC request: its id, the dialect of a known method, and the operation or the error that is sent.
pub fn rpc(
    headers: &HeaderMap,
    query: Option<&str>,
    body: &[u8],
) -> (Value, Option<Dialect>, Result<Operation, Value>) {
    let headers = &declared(headers);
    let (params, mut charge) = (ServiceParams::read(headers, query), Budget::unlimited().nothing());
    let call = Call::read(&OFFERED, headers, &params, body, &mut charge);
    let dialect = call.method.map(|method| method.dialect());
    let operation = call.request.map(|request| request.operation);
    let operation = operation.map_err(|rejection| rejection.jsonrpc_body(&call.id));
    (call.id, dialect, operation)
}

/// Decodes an HTTP+JSON request: its route, and the operation or the error that is sent, unless the path does not take the
/// method.
pub fn rest(request: Request<&[u8]>) -> Option<(Rest, Option<Result<Operation, Value>>)> {
    let (mut head, body) = request.into_parts();
    head.headers = declared(&head.headers);
    let params = ServiceParams::read(&head.headers, head.uri.query());
    let rest = rest_route(head.uri.path(), params.version())?;
    let read = |verb| {
        binding::admit(&OFFERED, &rest, verb, &params)?;
        let body = (head.method == Method::POST).then_some(body);
        binding::read(&OFFERED, &rest, verb, &head, body, &mut Budget::unlimited().nothing())
    };
    let error = |rejection: Rejection| rejection.rest_body(rest.dialect.version());
    let operation =
        rest.verb(&head.method).map(|verb| read(verb).map(|request| request.operation).map_err(error));
    Some((rest, operation))
}

/// An operation, or the code and the text of a status.
pub type GrpcResult = Result<Operation, (i32, String)>;

/// Decodes a call of gRPC: its version, and the operation or the code and the text of the status. `None` if there is no such
/// method.
pub fn grpc(path: &str, headers: &HeaderMap, body: &[u8]) -> Option<(Version, GrpcResult)> {
    let (mut head, ()) = Request::post(path).body(()).ok()?.into_parts();
    head.headers = headers.clone();
    let params = ServiceParams::read(headers, None);
    let version = grpc::version_of(path);
    let read = || {
        let call = grpc::Call::of(&head)?;
        call.admit(&OFFERED, &params)?;
        call.read(&OFFERED, headers, body, &mut Budget::unlimited().nothing())
    };
    match read() {
        Ok(request) => Some((version, Ok(request.operation))),
        Err(rejection) if rejection.kind == ErrorKind::MethodNotFound => None,
        Err(rejection) => {
            let status = grpc::status_of(&rejection, version);
            Some((version, Err((status.code().into(), status.message().to_owned()))))
        }
    }
}

/// Encodes a message as the answer to a send over gRPC; `None` if its data is nested too deep.
pub fn write_grpc(version: Version, message: &Addressed) -> Option<Vec<u8>> {
    grpc::encode(version, &Answer::Sent(Sent::Message(message.clone()))).ok()
}

pub fn rest_route(path: &str, requested: Option<&str>) -> Option<Rest> {
    match Route::of(path, requested) {
        Route::Rest(rest) => Some(rest),
        _ => None,
    }
}

pub fn query(text: &str) -> Vec<(String, String)> {
    route::query(Some(text)).collect()
}

pub fn write_message(dialect: Dialect, message: &Addressed) -> serde_json::Result<String> {
    serde_json::to_string(&InDialect(dialect, &Answer::Sent(Sent::Message(message.clone()))))
}

pub fn write_task(dialect: Dialect, task: &Arc<Task>) -> serde_json::Result<String> {
    serde_json::to_string(&InDialect(dialect, &Answer::Task(View::new(Arc::clone(task), None))))
}

pub fn read_message(dialect: Dialect, message: Value) -> Result<Addressed, String> {
    let params = Fields::of(json!({ "message": message }), Path::Root);
    let sent = params.and_then(|params| dialect.send_message(params));
    sent.map(|sent| sent.addressed)
        .map_err(|violation| format!("{} {}", violation.field, violation.description))
}

pub fn read_push_config(dialect: Dialect, params: Value) -> Option<(TaskId, PushConfig)> {
    let fields = Fields::of(params, Path::Root).ok()?;
    match push::operation(dialect, Verb::CreatePushConfig, fields).ok()? {
        Operation::CreatePushConfig(task, config) => Some((task, *config)),
        _ => None,
    }
}

pub fn write_push_config(dialect: Dialect, task: &TaskId, config: &PushConfig) -> serde_json::Result<String> {
    serde_json::to_string(&PushConfigOut(dialect, task, config))
}

pub fn decode_page_token(token: &str) -> Option<Place> {
    page_token::decode(token)
}

pub fn encode_page_token(place: &Place) -> String {
    page_token::encode(place)
}

pub fn timestamp(text: &str) -> Option<Timestamp> {
    rfc3339::parse(text)
}

/// Reads `Last-Event-ID`; `None` if it is rejected.
pub fn last_event(headers: &HeaderMap) -> Option<Option<u64>> {
    params::last_event(headers).ok()
}

pub fn bytes(text: &str) -> Option<Vec<u8>> {
    Fields::of(json!({ "raw": text }), Path::Root).ok()?.bytes("raw").ok()?
}

/// Reads a count; `None` if it is rejected.
pub fn count(value: Value) -> Option<Option<usize>> {
    Fields::of(json!({ "n": value }), Path::Root).ok()?.count("n").ok()
}

/// Returns the caller if this is the only token.
pub fn caller(token: &str, headers: &HeaderMap) -> Option<Principal> {
    let token = Token::new("caller", SecretString::from(token)).ok()?;
    Auth::new(vec![token]).caller(headers)
}

/// Returns the status of the answer to a request for the card.
pub fn card(headers: &HeaderMap) -> StatusCode {
    static CARD: LazyLock<Card> = LazyLock::new(|| {
        let addresses = Addresses::new("http://h", &GrpcAddress::default());
        Card::new(&CardConfig::default(), &addresses, true, None)
    });
    let params = ServiceParams::read(headers, None);
    CARD.respond(&Method::GET, headers, params.version(), version::NAME).status()
}
