//! Push notification configurations on the wire, in and out, and what is pushed.
//!
//! One [`Hook`] of the domain has three forms: flat in 1.0, nested in 0.3 over JSON-RPC, and nested with a resource name
//! in 0.3 over HTTP+JSON. Secrets come in and never go out again: a token and credentials are for the receiver, not for
//! whoever can read the configuration.
//!
//! Who sets a hook in 1.0 is told every event, as a `StreamResponse`; who sets it in 0.3 is told the whole task whenever
//! its status changed, since a 0.3 push has no other form. The pieces of an answer are told in the form that counted for
//! the request that set the hook. The token goes out in both headers that receivers look at.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use secrecy::SecretString;
use serde::{Serialize, Serializer};
use talaria_turns::{Authentication, Credential, Hook, HookId, News, State, StreamAs, TaskId, Tells};

use crate::dialect::{Dialect, Written};
use crate::operation::{Answer, Operation, Verb, View};
use crate::read::Fields;
use crate::refusal::Violation;
use crate::updates::{Happened, Home, Item};
use crate::version;
use crate::write::{Object, Seq};

/// A configuration, as its owner sees it.
pub(crate) struct HookOut<'a>(pub(crate) Dialect, pub(crate) &'a TaskId, pub(crate) &'a Hook);

/// All configurations of a task.
pub(crate) struct HooksOut<'a>(pub(crate) Dialect, pub(crate) &'a TaskId, pub(crate) &'a [Hook]);

/// One push, ready to be sent.
#[derive(Debug)]
pub struct Notification {
    /// Headers; some hold secrets.
    pub headers: Vec<(HeaderName, SecretString)>,
    /// The body.
    pub body: Bytes,
}

/// Bytes of a URL. What servers and proxies take.
const MAX_URL: usize = 2048;
/// Bytes of a token or of credentials: a long JWT.
const MAX_SECRET: usize = 8192;
/// Bytes of a scheme's name.
const MAX_SCHEME: usize = 64;

/// Where the Python and JavaScript SDKs look for the token.
const X_TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
/// Where the Go and Rust SDKs look for it.
const TOKEN: HeaderName = HeaderName::from_static("a2a-notification-token");

/// Reads the parameters of an operation on configurations. A path's ids are bound to `taskId` and `id`.
pub(crate) fn operation(
    dialect: Dialect,
    verb: Verb,
    mut fields: Fields<'_>,
) -> Result<Operation, Violation> {
    // 0.3 over JSON-RPC names the task `id`, and the configuration after what it is.
    let (task, hook) = match dialect {
        Dialect::V03 if verb != Verb::SetHook => ("id", "pushNotificationConfigId"),
        _ => ("taskId", "id"),
    };
    let task = fields.required_id(task)?;
    Ok(match verb {
        Verb::GetHook if dialect == Dialect::V03 => Operation::GetHook(task, fields.id(hook)?),
        Verb::GetHook => Operation::GetHook(task, Some(fields.required_id(hook)?)),
        Verb::RemoveHook => Operation::RemoveHook(task, fields.required_id(hook)?),
        Verb::SetHook => {
            let hook = match dialect {
                Dialect::V1 => flat(fields)?,
                Dialect::V03 => nested(fields, &task)?,
                Dialect::V03Rest => resource(fields, &task)?,
            };
            Operation::SetHook(task, Box::new(hook))
        }
        _ => {
            // All fit on one page.
            if fields.string("pageToken")?.is_some() {
                return Err(fields.at("pageToken").refuse("must be a nextPageToken of this server"));
            }
            fields.count("pageSize")?;
            Operation::ListHooks(task)
        }
    })
}

/// A configuration of 1.0, which may also come with a message.
pub(crate) fn flat(mut fields: Fields<'_>) -> Result<Hook, Violation> {
    let id = fields.id("id")?.unwrap_or_else(HookId::fresh);
    let authentication = fields.object("authentication", |mut fields| {
        let scheme = fields.string("scheme")?.ok_or_else(|| fields.at("scheme").refuse("is required"))?;
        authentication(fields, scheme)
    })?;
    finish(fields, id, Tells::Events, authentication)
}

/// A configuration of 0.3, which may also come with a message.
pub(crate) fn old(mut fields: Fields<'_>) -> Result<Hook, Violation> {
    let id = fields.id("id")?.unwrap_or_else(HookId::fresh);
    let authentication = fields.object("authentication", |mut fields| {
        // The receiver takes any of them; the first is its favourite.
        let scheme = fields.strings("schemes")?.into_iter().next().unwrap_or_else(|| "Bearer".into());
        authentication(fields, scheme)
    })?;
    finish(fields, id, Tells::Task, authentication)
}

/// The parameters of 0.3's `set`. Without an id it is the task's only one, as the SDKs have it.
fn nested(mut fields: Fields<'_>, task: &TaskId) -> Result<Hook, Violation> {
    let mut named = false;
    let hook = fields.object("pushNotificationConfig", |inner| {
        named = inner.is_written("id");
        old(inner)
    })?;
    let mut hook = hook.ok_or_else(|| fields.at("pushNotificationConfig").refuse("is required"))?;
    if !named {
        hook.id = task.as_str().parse().unwrap_or(hook.id);
    }
    Ok(hook)
}

/// The body of 0.3's `set` over HTTP+JSON: the resource, or the whole request around it, as the SDKs send it.
fn resource(mut fields: Fields<'_>, task: &TaskId) -> Result<Hook, Violation> {
    let chosen: Option<HookId> = fields.id("configId")?;
    let wrapped = fields.object("config", |inner| nested(inner, task))?;
    let mut hook = match wrapped {
        Some(hook) => hook,
        None if fields.is_written("url") => old(fields)?,
        None => nested(fields, task)?,
    };
    if let Some(chosen) = chosen {
        hook.id = chosen;
    }
    Ok(hook)
}

fn authentication(mut fields: Fields<'_>, scheme: String) -> Result<Authentication, Violation> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if scheme.len() > MAX_SCHEME || !scheme.bytes().all(is_token) {
        return Err(fields.at("scheme").refuse("must be the name of an HTTP authentication scheme"));
    }
    Ok(Authentication { scheme, credentials: secret(&mut fields, "credentials")? })
}

fn finish(
    mut fields: Fields<'_>,
    id: HookId,
    tells: Tells,
    authentication: Option<Authentication>,
) -> Result<Hook, Violation> {
    let url = fields.string("url")?.ok_or_else(|| fields.at("url").refuse("is required"))?;
    if url.len() > MAX_URL {
        return Err(fields.at("url").refuse(format!("must not be longer than {MAX_URL} bytes")));
    }
    let token = secret(&mut fields, "token")?;
    // Whoever performs the request knows who asks, and so how pieces are told.
    Ok(Hook { id, url, tells, stream: StreamAs::default(), token, authentication })
}

/// Something that will be part of a header.
fn secret(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Credential>, Violation> {
    let Some(text) = fields.string(name)? else { return Ok(None) };
    if text.len() > MAX_SECRET || !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        let wanted =
            format!("must be at most {MAX_SECRET} visible ASCII characters, as it goes into a header");
        return Err(fields.at(name).refuse(wanted));
    }
    Ok(Some(Credential::new(text)))
}

impl Serialize for HookOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(dialect, task, hook) = *self;
        let mut object = Object::begin(serializer)?;
        match dialect {
            Dialect::V1 => {
                object.field("id", hook.id.as_str())?;
                object.field("taskId", task.as_str())?;
                object.field("url", &hook.url)?;
                object.maybe("authentication", hook.authentication.as_ref().map(SchemeOut))?;
            }
            Dialect::V03 => {
                object.field("taskId", task.as_str())?;
                object.field("pushNotificationConfig", &Old(hook))?;
            }
            Dialect::V03Rest => {
                object.field("name", &format_args!("tasks/{task}/pushNotificationConfigs/{}", hook.id))?;
                object.field("pushNotificationConfig", &Old(hook))?;
            }
        }
        object.end()
    }
}

impl Serialize for HooksOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(dialect, task, hooks) = *self;
        let all = hooks.iter().map(|hook| HookOut(dialect, task, hook));
        if dialect == Dialect::V03 {
            return serializer.collect_seq(all);
        }
        let mut object = Object::begin(serializer)?;
        object.field("configs", &Seq(all))?;
        object.end()
    }
}

/// The `authentication` of 1.0.
struct SchemeOut<'a>(&'a Authentication);

impl Serialize for SchemeOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("scheme", &self.0.scheme)?;
        object.end()
    }
}

/// The `pushNotificationConfig` of 0.3.
struct Old<'a>(&'a Hook);

impl Serialize for Old<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("id", self.0.id.as_str())?;
        object.field("url", &self.0.url)?;
        object.maybe("authentication", self.0.authentication.as_ref().map(SchemesOut))?;
        object.end()
    }
}

/// The `authentication` of 0.3.
struct SchemesOut<'a>(&'a Authentication);

impl Serialize for SchemesOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("schemes", &[&self.0.scheme])?;
        object.end()
    }
}

// === impl Notification ===

impl Notification {
    /// What a hook is sent about news.
    ///
    /// # Errors
    /// Where the news cannot be written as JSON, which is a fault of ours.
    pub fn new(hook: &Hook, news: &News) -> Result<Self, serde_json::Error> {
        let (media_type, version, body) = match news {
            News::Event(task, entry) => {
                let home = Home { task: task.id.clone(), context: task.context.clone() };
                let event = Arc::clone(&entry.event);
                // A note does not say where its task stood; a turn at work said it.
                let state = event.state().unwrap_or(State::Working);
                let (home, sequence, form) = (Arc::new(home), entry.sequence, hook.stream);
                let item = Item::Event(Happened { home, event, state, last: false, sequence, form });
                ("application/a2a+json", "1.0", serde_json::to_vec(&Written(Dialect::V1, &item))?)
            }
            News::Task(task) => {
                let answer = Answer::Task(View::new(Arc::clone(task), None));
                ("application/json", "0.3", serde_json::to_vec(&Written(Dialect::V03, &answer))?)
            }
        };
        let mut headers = vec![(CONTENT_TYPE, media_type.into()), (version::HEADER, version.into())];
        if let Some(Authentication { scheme, credentials: Some(credentials) }) = &hook.authentication {
            headers.push((AUTHORIZATION, format!("{scheme} {}", credentials.expose()).into()));
        }
        if let Some(token) = &hook.token {
            headers.extend([X_TOKEN, TOKEN].map(|name| (name, token.expose().into())));
        }
        Ok(Self { headers, body: Bytes::from(body) })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use serde_json::{Value, json};
    use talaria_turns::{ContextId, Entry, Event, Task};

    use super::*;
    use crate::read::Path;

    fn read(dialect: Dialect, verb: Verb, value: Value) -> Result<Operation, Violation> {
        operation(dialect, verb, Fields::of(value, Path::Root).unwrap())
    }

    fn set(dialect: Dialect, value: Value) -> Hook {
        match read(dialect, Verb::SetHook, value).unwrap() {
            Operation::SetHook(task, hook) => {
                assert_eq!(task.as_str(), "t");
                *hook
            }
            other => panic!("{other:?}"),
        }
    }

    fn hook(id: &str, tells: Tells) -> Hook {
        Hook {
            id: id.parse().unwrap(),
            url: "https://a.example/h".into(),
            tells,
            stream: StreamAs::default(),
            token: Some(Credential::new("tok")),
            authentication: Some(Authentication {
                scheme: "Bearer".into(),
                credentials: Some(Credential::new("s3cret")),
            }),
        }
    }

    #[test]
    fn one_configuration_in_three_forms() {
        let one = json!({
            "taskId": "t", "id": "c", "url": "https://a.example/h", "token": "tok",
            "authentication": { "scheme": "Bearer", "credentials": "s3cret" },
        });
        assert_eq!(set(Dialect::V1, one), hook("c", Tells::Events));
        let inner = json!({
            "id": "c", "url": "https://a.example/h", "token": "tok",
            "authentication": { "schemes": ["Bearer", "Basic"], "credentials": "s3cret" },
        });
        let old = json!({ "taskId": "t", "pushNotificationConfig": inner });
        assert_eq!(set(Dialect::V03, old.clone()), hook("c", Tells::Task));
        let whole =
            json!({ "taskId": "t", "parent": "tasks/t", "config": { "pushNotificationConfig": inner } });
        for body in [old, whole] {
            assert_eq!(set(Dialect::V03Rest, body), hook("c", Tells::Task));
        }
        let named = json!({ "taskId": "t", "configId": "d", "config": { "pushNotificationConfig": inner } });
        assert_eq!(set(Dialect::V03Rest, named), hook("d", Tells::Task));
    }

    #[test]
    fn without_an_id_0_3_has_one_a_task_and_1_0_as_many_as_are_made() {
        let old = json!({ "taskId": "t", "pushNotificationConfig": { "url": "https://a.example" } });
        assert_eq!(set(Dialect::V03, old).id.as_str(), "t");
        let one = || set(Dialect::V1, json!({ "taskId": "t", "url": "https://a.example" })).id;
        assert_ne!(one(), one());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let long = "x".repeat(MAX_URL + 1);
        for (bad, field) in [
            (json!({ "taskId": "t" }), "url"),
            (json!({ "url": "https://a.example" }), "taskId"),
            (json!({ "taskId": "t", "url": 7 }), "url"),
            (json!({ "taskId": "t", "url": long }), "url"),
            (json!({ "taskId": "t", "url": "https://a.example", "id": "a\nb" }), "id"),
            (json!({ "taskId": "t", "url": "https://a.example", "token": "a\r\nx: y" }), "token"),
            (
                json!({ "taskId": "t", "url": "https://a.example", "authentication": {} }),
                "authentication.scheme",
            ),
            (
                json!({ "taskId": "t", "url": "https://a.example", "authentication": { "scheme": "a b" } }),
                "authentication.scheme",
            ),
            (
                json!({ "taskId": "t", "url": "https://a.example", "authentication": { "scheme": "a", "credentials": "ü" } }),
                "authentication.credentials",
            ),
        ] {
            assert_eq!(read(Dialect::V1, Verb::SetHook, bad.clone()).unwrap_err().field, field, "{bad}");
        }
        let violation = read(Dialect::V1, Verb::GetHook, json!({ "taskId": "t" })).unwrap_err();
        assert_eq!(violation.field, "id");
        let violation = read(Dialect::V03, Verb::RemoveHook, json!({ "id": "t" })).unwrap_err();
        assert_eq!(violation.field, "pushNotificationConfigId");
    }

    #[test]
    fn secrets_never_go_out_again() {
        let (task, hook) = ("t".parse().unwrap(), hook("c", Tells::Events));
        for (dialect, written) in [
            (
                Dialect::V1,
                json!({ "id": "c", "taskId": "t", "url": "https://a.example/h", "authentication": { "scheme": "Bearer" } }),
            ),
            (
                Dialect::V03,
                json!({ "taskId": "t", "pushNotificationConfig": {
                    "id": "c", "url": "https://a.example/h", "authentication": { "schemes": ["Bearer"] },
                } }),
            ),
            (
                Dialect::V03Rest,
                json!({ "name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {
                    "id": "c", "url": "https://a.example/h", "authentication": { "schemes": ["Bearer"] },
                } }),
            ),
        ] {
            assert_eq!(serde_json::to_value(HookOut(dialect, &task, &hook)).unwrap(), written);
        }
        assert!(!format!("{hook:?}").contains("s3cret") && !format!("{hook:?}").contains("tok\""));
    }

    #[test]
    fn a_push_has_the_form_of_its_version_and_every_header() {
        let task = Arc::new(Task::new("t".parse().unwrap(), "c".parse::<ContextId>().unwrap()));
        let entry = Entry { sequence: 2, event: Arc::new(Event::moved(State::Working)) };
        let push =
            Notification::new(&hook("c", Tells::Events), &News::Event(Arc::clone(&task), entry)).unwrap();
        let header = |push: &Notification, name: &str| {
            let found = push.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.expose_secret().to_owned())
        };
        for (name, value) in [
            ("content-type", "application/a2a+json"),
            ("authorization", "Bearer s3cret"),
            ("x-a2a-notification-token", "tok"),
            ("a2a-notification-token", "tok"),
        ] {
            assert_eq!(header(&push, name).as_deref(), Some(value), "{name}");
        }
        let body: Value = serde_json::from_slice(&push.body).unwrap();
        assert_eq!(body["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
        assert!(!format!("{push:?}").contains("s3cret"));

        let push = Notification::new(&hook("c", Tells::Task), &News::Task(task)).unwrap();
        assert_eq!(header(&push, "content-type").as_deref(), Some("application/json"));
        let body: Value = serde_json::from_slice(&push.body).unwrap();
        assert_eq!((&body["kind"], &body["id"]), (&json!("task"), &json!("t")));
    }
}
