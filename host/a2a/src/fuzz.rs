//! Doors for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! The parsers as the server calls them, with types that may leave the crate. Nothing is checked here: what must hold is
//! said by the targets.

use std::sync::{Arc, LazyLock};

use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_turns::{ContextId, Hook, Message, Place, Principal, Task, TaskId, Timestamp};

use crate::auth::{Auth, Token};
use crate::capabilities::Capabilities;
use crate::card::{Card, CardConfig};
use crate::dialect::{self, Written};
use crate::hook::{self, HookOut};
use crate::jsonrpc::Call;
use crate::operation::{self, Answer, Operation, Sent, Verb, View};
use crate::read::{Fields, Path};
use crate::route::{self, Route};
use crate::version::{self, Version};
use crate::{body, moment, page, params, rest as binding};

/// A JSON of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 1.0.
    V1,
    /// 0.3, as JSON-RPC has it.
    V03,
    /// 0.3, as HTTP+JSON has it.
    V03Rest,
}

/// A message and where it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Addressed {
    /// The message.
    pub message: Message,
    /// Its task.
    pub task: Option<TaskId>,
    /// Its conversation.
    pub context: Option<ContextId>,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// To take a message.
    Send(Addressed),
    /// Something about a task.
    About(TaskId),
    /// Something about the hooks of a task; where one is set, which.
    Hook(TaskId, Option<Box<Hook>>),
    /// A list that goes on after a place.
    List(Option<Place>),
    /// The extended card.
    Card,
}

/// What was made of a JSON-RPC request.
#[derive(Debug)]
pub struct Rpc {
    /// What the answer echoes.
    pub id: Value,
    /// The dialect of the method, where it is known.
    pub dialect: Option<Dialect>,
    /// What it asks for, or the error that is sent.
    pub asked: Result<Asked, Value>,
}

/// What was made of an HTTP+JSON request.
#[derive(Debug)]
pub struct Rest {
    /// What the path names.
    pub routed: Routed,
    /// What it asks for, or the error that is sent; none where the path does not take the method.
    pub asked: Option<Result<Asked, Value>>,
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// As the log calls it.
    pub name: &'static str,
    /// The dialect.
    pub dialect: Dialect,
    /// The tenant in it.
    pub tenant: Option<String>,
    /// The task in it.
    pub task: Option<String>,
}

/// Everything is offered, so that every parser is reached.
static OFFERED: LazyLock<Capabilities> =
    LazyLock::new(|| Capabilities::new(&CardConfig { extended_card: true, ..CardConfig::default() }));

/// A body, as JSON.
pub fn json(body: &[u8]) -> Option<Value> {
    body::parse(body).ok()
}

/// A JSON-RPC request.
pub fn rpc(headers: &HeaderMap, query: Option<&str>, body: &[u8]) -> Rpc {
    let call = Call::read(&OFFERED, headers, version::asked(headers, query), body);
    let error = |refusal: crate::refusal::Refusal| refusal.jsonrpc_body(&call.id);
    Rpc {
        dialect: call.method.map(|method| method.dialect().into()),
        asked: call.request.map(Asked::from).map_err(error),
        id: call.id,
    }
}

/// An HTTP+JSON request; none where the path is none of its.
pub fn rest(request: Request<&[u8]>) -> Option<Rest> {
    let (head, body) = request.into_parts();
    let asked = version::asked(&head.headers, head.uri.query());
    let Route::Rest(rest) = Route::of(head.uri.path(), asked) else { return None };
    let version = rest.dialect.version();
    let read = |head: &Parts, verb| {
        binding::admit(&OFFERED, &rest, verb, head)?;
        binding::read(&rest, verb, head, (head.method == Method::POST).then_some(body))
    };
    let asked = rest
        .verb(&head.method)
        .map(|verb| read(&head, verb).map(Asked::from).map_err(|refusal| refusal.rest_body(version)));
    Some(Rest { routed: routed(head.uri.path(), version::asked(&head.headers, head.uri.query()))?, asked })
}

/// What a path of HTTP+JSON names.
pub fn routed(path: &str, asked: Option<&str>) -> Option<Routed> {
    let route = Route::of(path, asked);
    let name = route.name();
    let Route::Rest(rest) = route else { return None };
    Some(Routed { name, dialect: rest.dialect.into(), tenant: rest.tenant, task: rest.task })
}

/// The parameters of a query.
pub fn query(text: &str) -> Vec<(String, String)> {
    route::query(Some(text)).collect()
}

/// A message as the answer to a send.
pub fn write_message(dialect: Dialect, said: &Addressed) -> serde_json::Result<String> {
    let Addressed { message, task, context } = said.clone();
    let said = operation::Addressed { message, task, context };
    serde_json::to_string(&Written(dialect.into(), &Answer::Sent(Sent::Message(said))))
}

/// A task as the answer to a question about it.
pub fn write_task(dialect: Dialect, task: &Arc<Task>) -> serde_json::Result<String> {
    serde_json::to_string(&Written(dialect.into(), &Answer::Task(View::new(Arc::clone(task), None))))
}

/// A message, as a send brings it.
pub fn read_message(dialect: Dialect, message: Value) -> Result<Addressed, String> {
    let params = Fields::of(json!({ "message": message }), Path::Root);
    let sent = params.and_then(|params| dialect::Dialect::from(dialect).send_message(params));
    sent.map(|sent| sent.addressed.into())
        .map_err(|violation| format!("{} {}", violation.field, violation.description))
}

/// A hook, as the parameters of a set have it.
pub fn read_hook(dialect: Dialect, params: Value) -> Option<(TaskId, Hook)> {
    let fields = Fields::of(params, Path::Root).ok()?;
    match hook::operation(dialect.into(), Verb::SetHook, fields).ok()? {
        Operation::SetHook(task, hook) => Some((task, *hook)),
        _ => None,
    }
}

/// A hook as its owner sees it.
pub fn write_hook(dialect: Dialect, task: &TaskId, hook: &Hook) -> serde_json::Result<String> {
    serde_json::to_string(&HookOut(dialect.into(), task, hook))
}

/// The place that a page token means.
pub fn place(token: &str) -> Option<Place> {
    page::place(token)
}

/// A place as a page token.
pub fn page_token(place: &Place) -> String {
    page::token(place)
}

/// A moment of RFC 3339.
pub fn moment(text: &str) -> Option<Timestamp> {
    moment::parse(text)
}

/// `Last-Event-ID`; none where it is refused.
pub fn last_event(headers: &HeaderMap) -> Option<Option<u64>> {
    params::last_event(headers).ok()
}

/// Bytes in base64.
pub fn bytes(text: &str) -> Option<Vec<u8>> {
    Fields::of(json!({ "raw": text }), Path::Root).ok()?.bytes("raw").ok()?
}

/// A count, as JSON writes it; none where it is refused.
pub fn count(value: Value) -> Option<Option<usize>> {
    Fields::of(json!({ "n": value }), Path::Root).ok()?.count("n").ok()
}

/// Whether a caller who states this version is served by 0.3, and by 1.0.
pub fn served(asked: Option<&str>) -> (bool, bool) {
    (Version::V03.serves(asked), Version::V1.serves(asked))
}

/// Who calls, where this is the only token.
pub fn caller(token: &str, headers: &HeaderMap) -> Option<Principal> {
    let token = Token::new("caller", SecretString::from(token)).ok()?;
    Auth::new(vec![token]).caller(headers)
}

/// The status that the card is answered with.
pub fn card(headers: &HeaderMap) -> StatusCode {
    static CARD: LazyLock<Card> = LazyLock::new(|| Card::new(&CardConfig::default(), "http://h", true, None));
    CARD.respond(&Method::GET, headers, version::asked(headers, None), version::NAME).status()
}

impl From<dialect::Dialect> for Dialect {
    fn from(dialect: dialect::Dialect) -> Self {
        match dialect {
            dialect::Dialect::V1 => Self::V1,
            dialect::Dialect::V03 => Self::V03,
            dialect::Dialect::V03Rest => Self::V03Rest,
        }
    }
}

impl From<Dialect> for dialect::Dialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::V1 => Self::V1,
            Dialect::V03 => Self::V03,
            Dialect::V03Rest => Self::V03Rest,
        }
    }
}

impl From<operation::Addressed> for Addressed {
    fn from(operation::Addressed { message, task, context }: operation::Addressed) -> Self {
        Self { message, task, context }
    }
}

impl From<operation::Request> for Asked {
    fn from(request: operation::Request) -> Self {
        match request.operation {
            Operation::Send(send) | Operation::Stream(send, _) => Self::Send(send.addressed.into()),
            Operation::Get(get) => Self::About(get.id),
            Operation::Cancel(id) => Self::About(id),
            Operation::SetHook(id, hook) => Self::Hook(id, Some(hook)),
            Operation::GetHook(id, _) | Operation::ListHooks(id) | Operation::RemoveHook(id, _) => {
                Self::Hook(id, None)
            }
            Operation::Subscribe(subscribe) => Self::About(subscribe.id),
            Operation::List(list) => Self::List(list.after),
            Operation::ExtendedCard(_) => Self::Card,
        }
    }
}
