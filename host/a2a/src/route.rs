//! Routes: what a path addresses, and which methods it takes.
//!
//! `/` is JSON-RPC, and a call of gRPC is known by its media type. The rest is HTTP+JSON: the paths of 1.0 on their own or below one segment that names a tenant, the paths of
//! 0.3 below `/v1`. For a caller who requests 1.x, `/v1/…` is the tenant `v1`; for everybody else it is 0.3.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::dialect::Dialect;
use crate::operation::Verb;
use crate::version::Version;

/// What a path addresses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Rpc,
    Card,
    Rest(Rest),
    /// A call of gRPC; its method is in the path.
    Grpc,
    Unknown,
}

/// A resource of HTTP+JSON.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest {
    pub dialect: Dialect,
    pub tenant: Option<String>,
    pub task: Option<String>,
    pub push_config: Option<String>,
    resource: Resource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Send,
    Stream,
    Tasks,
    Task,
    Cancel,
    Subscribe,
    PushConfigs,
    PushConfig,
    ExtendedCard,
}

/// The prefix of 0.3.
const V03_PREFIX: &str = "v1";

// === impl Route ===

impl Route {
    /// Returns the route of a path for a caller who requests the version `requested`.
    pub(crate) fn of(path: &str, requested: Option<&str>) -> Self {
        match path {
            "/" => return Self::Rpc,
            // The second is the path of 0.2, which the platform still uses.
            "/.well-known/agent-card.json" | "/.well-known/agent.json" => return Self::Card,
            _ => {}
        }
        // The longest path has five segments; a path with a sixth matches nothing.
        let Some(segments) = path.strip_prefix('/').map(|path| path.splitn(6, '/').collect::<Vec<_>>())
        else {
            return Self::Unknown;
        };
        Rest::of(&segments, requested).map_or(Self::Unknown, Self::Rest)
    }

    /// The name for the access log.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::Card => "card",
            Self::Rest(rest) => rest.name(),
            Self::Grpc => "grpc",
            Self::Unknown => "unknown",
        }
    }
}

// === impl Rest ===

impl Rest {
    fn of(segments: &[&str], requested: Option<&str>) -> Option<Self> {
        let found = |dialect, tenant: Option<&str>, segments: &[&str]| {
            let (resource, task, push_config) = resource(segments, dialect)?;
            let tenant = match tenant {
                None => None,
                Some(tenant) => Some(decoded(tenant).filter(|tenant| !tenant.is_empty())?),
            };
            Some(Self { dialect, tenant, task, push_config, resource })
        };
        match segments.split_first() {
            Some((&V03_PREFIX, rest)) if !Version::V1.serves(requested) => {
                found(Dialect::V03Rest, None, rest)
            }
            Some((first, rest)) => {
                found(Dialect::V1, None, segments).or_else(|| found(Dialect::V1, Some(first), rest))
            }
            None => None,
        }
    }

    /// The name for the access log.
    pub fn name(&self) -> &'static str {
        self.resource.name()
    }

    /// What a method does to this resource.
    pub(crate) fn verb(&self, method: &Method) -> Option<Verb> {
        self.resource.verbs().iter().find(|(allowed, _)| allowed == method).map(|(_, verb)| *verb)
    }

    /// The methods that the resource takes, for the `Allow` header.
    pub(crate) fn allow(&self) -> String {
        let names: Vec<_> = self.resource.verbs().iter().map(|(method, _)| method.as_str()).collect();
        names.join(", ")
    }
}

// === impl Resource ===

impl Resource {
    fn verbs(self) -> &'static [(Method, Verb)] {
        match self {
            Self::Send => &[(Method::POST, Verb::Send)],
            Self::Stream => &[(Method::POST, Verb::Stream)],
            Self::Tasks => &[(Method::GET, Verb::List)],
            Self::Task => &[(Method::GET, Verb::Get)],
            Self::Cancel => &[(Method::POST, Verb::Cancel)],
            // The text of the specification says POST, its proto says GET; clients use either.
            Self::Subscribe => &[(Method::GET, Verb::Subscribe), (Method::POST, Verb::Subscribe)],
            Self::PushConfigs => {
                &[(Method::GET, Verb::ListPushConfigs), (Method::POST, Verb::CreatePushConfig)]
            }
            Self::PushConfig => {
                &[(Method::GET, Verb::GetPushConfig), (Method::DELETE, Verb::DeletePushConfig)]
            }
            Self::ExtendedCard => &[(Method::GET, Verb::ExtendedCard)],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Send => "message:send",
            Self::Stream => "message:stream",
            Self::Tasks => "tasks",
            Self::Task => "task",
            Self::Cancel => "task:cancel",
            Self::Subscribe => "task:subscribe",
            Self::PushConfigs => "pushNotificationConfigs",
            Self::PushConfig => "pushNotificationConfig",
            Self::ExtendedCard => "extendedAgentCard",
        }
    }
}

/// Returns the resource that the segments address, with the ids of a task and of a push configuration in them.
fn resource(segments: &[&str], dialect: Dialect) -> Option<(Resource, Option<String>, Option<String>)> {
    let id = |text: &str| decoded(text).filter(|id| !id.is_empty());
    let alone = |resource| Some((resource, None, None));
    let with_task = |resource, task: &str| Some((resource, Some(id(task)?), None));
    match segments {
        ["message:send"] => alone(Resource::Send),
        ["message:stream"] => alone(Resource::Stream),
        ["extendedAgentCard"] if dialect == Dialect::V1 => alone(Resource::ExtendedCard),
        ["card"] if dialect != Dialect::V1 => alone(Resource::ExtendedCard),
        // 0.3 has no list.
        ["tasks"] if dialect == Dialect::V1 => alone(Resource::Tasks),
        ["tasks", last] => match last.rsplit_once(':') {
            Some((task, "cancel")) => with_task(Resource::Cancel, task),
            Some((task, "subscribe")) => with_task(Resource::Subscribe, task),
            _ => with_task(Resource::Task, last),
        },
        ["tasks", task, "pushNotificationConfigs"] => with_task(Resource::PushConfigs, task),
        ["tasks", task, "pushNotificationConfigs", config] => {
            Some((Resource::PushConfig, Some(id(task)?), Some(id(config)?)))
        }
        _ => None,
    }
}

/// Decodes the parameters of a query. Text that cannot be decoded becomes a replacement character, which the decoder of that
/// parameter rejects.
pub(crate) fn query(query: Option<&str>) -> impl Iterator<Item = (String, String)> + '_ {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| decoded(&text.replace('+', " ")).unwrap_or_else(|| "\u{fffd}".into());
        (decode(name), decode(value))
    })
}

/// Decodes percent-encoded text; `None` if an escape is incomplete or the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    // The decoder copies an incomplete escape; two spellings of one id would be the result.
    let is_escape =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit));
    let is_valid = text.split('%').skip(1).all(is_escape);
    is_valid.then(|| String::from_utf8(percent_decode_str(text).collect()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(
        path: &str,
        requested: Option<&str>,
    ) -> Option<(Dialect, Option<String>, Option<String>, &'static str)> {
        match Route::of(path, requested) {
            Route::Rest(rest) => {
                let name = rest.name();
                Some((rest.dialect, rest.tenant, rest.task, name))
            }
            _ => None,
        }
    }

    #[test]
    fn routes_paths_of_both_versions_with_and_without_a_tenant() {
        let text = |text: &str| Some(text.to_owned());
        let one = Some("1.0");
        for (path, requested, found) in [
            ("/message:send", one, (Dialect::V1, None, None, "message:send")),
            ("/message:send", None, (Dialect::V1, None, None, "message:send")),
            ("/acme/message:send", one, (Dialect::V1, text("acme"), None, "message:send")),
            ("/v1/message:send", one, (Dialect::V1, text("v1"), None, "message:send")),
            ("/v1/message:send", None, (Dialect::V03Rest, None, None, "message:send")),
            ("/v1/message:send", Some("0.3"), (Dialect::V03Rest, None, None, "message:send")),
            ("/v1/card", None, (Dialect::V03Rest, None, None, "extendedAgentCard")),
            ("/tasks/t%2F1:cancel", one, (Dialect::V1, None, text("t/1"), "task:cancel")),
            ("/tasks/a:b", one, (Dialect::V1, None, text("a:b"), "task")),
            ("/tasks/tasks", one, (Dialect::V1, None, text("tasks"), "task")),
            ("/a%20b/tasks/t:subscribe", one, (Dialect::V1, text("a b"), text("t"), "task:subscribe")),
            ("/x/extendedAgentCard", one, (Dialect::V1, text("x"), None, "extendedAgentCard")),
            (
                "/tasks/t/pushNotificationConfigs/c",
                one,
                (Dialect::V1, None, text("t"), "pushNotificationConfig"),
            ),
            (
                "/tasks/t/pushNotificationConfigs",
                one,
                (Dialect::V1, None, text("t"), "pushNotificationConfigs"),
            ),
        ] {
            assert_eq!(rest(path, requested), Some(found), "{path} {requested:?}");
        }
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in [
            "",
            "//",
            "/x",
            "/message:",
            "/tasks/",
            "/tasks/:cancel",
            "/a/b/tasks",
            "//tasks",
            "/tasks/%ff",
            "/tasks/%",
            "/tasks/t/",
            "/card",
            "/a/tasks/t/pushNotificationConfigs/c/d",
            "/x/v1/message:send",
            "/TASKS",
        ] {
            assert_eq!(rest(path, Some("1.0")), None, "{path}");
        }
        for path in ["/v1", "/v1/", "/v1/tasks", "/v1/extendedAgentCard", "/v1/x/tasks/t"] {
            assert_eq!(rest(path, None), None, "{path}");
        }
    }

    #[test]
    fn decodes_queries() {
        let pairs: Vec<_> = query(Some("a=1&b=x+y%2Bz&&c&d=%ff&e=%4")).collect();
        let expected = [("a", "1"), ("b", "x y+z"), ("c", ""), ("d", "\u{fffd}"), ("e", "\u{fffd}")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(query(None).count(), 0);
    }
}
