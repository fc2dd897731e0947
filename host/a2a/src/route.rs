//! What a path names, and what may be done with it.
//!
//! `/` is JSON-RPC. The rest is HTTP+JSON: of 1.0 as it stands or behind one segment that names a tenant, of 0.3 behind
//! `/v1`. A caller who states 1.x means `/v1/…` as the tenant `v1`; to everybody else it is 0.3.

use http::Method;

use crate::dialect::Dialect;
use crate::operation::Verb;
use crate::version::Version;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Rpc,
    Card,
    Rest(Rest),
    Unknown,
}

/// Something of HTTP+JSON.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) dialect: Dialect,
    pub(crate) tenant: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) hook: Option<String>,
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
    Hooks,
    Hook,
    ExtendedCard,
}

/// The prefix of 0.3.
const OLD: &str = "v1";

// === impl Route ===

impl Route {
    /// `asked` is the version that the caller states.
    pub(crate) fn of(path: &str, asked: Option<&str>) -> Self {
        match path {
            "/" => return Self::Rpc,
            // The second is where 0.2 had it, and where the platform still looks.
            "/.well-known/agent-card.json" | "/.well-known/agent.json" => return Self::Card,
            _ => {}
        }
        // The longest path has five segments; what is left over in a sixth fits none.
        let Some(segments) = path.strip_prefix('/').map(|path| path.splitn(6, '/').collect::<Vec<_>>())
        else {
            return Self::Unknown;
        };
        Rest::of(&segments, asked).map_or(Self::Unknown, Self::Rest)
    }

    /// For the access log.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::Card => "card",
            Self::Rest(rest) => rest.resource.name(),
            Self::Unknown => "unknown",
        }
    }
}

// === impl Rest ===

impl Rest {
    fn of(segments: &[&str], asked: Option<&str>) -> Option<Self> {
        let found = |dialect, tenant: Option<&str>, segments: &[&str]| {
            let (resource, task, hook) = resource(segments, dialect)?;
            let tenant = match tenant {
                None => None,
                Some(tenant) => Some(decoded(tenant, false).filter(|tenant| !tenant.is_empty())?),
            };
            Some(Self { dialect, tenant, task, hook, resource })
        };
        match segments.split_first() {
            Some((&OLD, rest)) if !Version::V1.serves(asked) => found(Dialect::V03Rest, None, rest),
            Some((first, rest)) => {
                found(Dialect::V1, None, segments).or_else(|| found(Dialect::V1, Some(first), rest))
            }
            None => None,
        }
    }

    /// What a method does here.
    pub(crate) fn verb(&self, method: &Method) -> Option<Verb> {
        self.resource.verbs().iter().find(|(allowed, _)| allowed == method).map(|(_, verb)| *verb)
    }

    /// The methods that do something.
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
            // The text of the specification says POST, its proto says GET; clients do either.
            Self::Subscribe => &[(Method::GET, Verb::Subscribe), (Method::POST, Verb::Subscribe)],
            Self::Hooks => &[(Method::GET, Verb::ListHooks), (Method::POST, Verb::SetHook)],
            Self::Hook => &[(Method::GET, Verb::GetHook), (Method::DELETE, Verb::RemoveHook)],
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
            Self::Hooks | Self::Hook => "pushNotificationConfigs",
            Self::ExtendedCard => "extendedAgentCard",
        }
    }
}

/// What the segments name, with the ids of a task and of a hook in them.
fn resource(segments: &[&str], dialect: Dialect) -> Option<(Resource, Option<String>, Option<String>)> {
    let id = |text: &str| decoded(text, false).filter(|id| !id.is_empty());
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
        ["tasks", task, "pushNotificationConfigs"] => with_task(Resource::Hooks, task),
        ["tasks", task, "pushNotificationConfigs", hook] => {
            Some((Resource::Hook, Some(id(task)?), Some(id(hook)?)))
        }
        _ => None,
    }
}

/// The parameters of a query.
pub(crate) fn query(query: Option<&str>) -> impl Iterator<Item = (String, String)> + '_ {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // What is not UTF-8 is no value of ours; it is told so where it is read.
        let decode = |text: &str| decoded(text, true).unwrap_or_else(|| "\u{fffd}".into());
        (decode(name), decode(value))
    })
}

/// Takes the percent signs out; none where that gives no text. In a query, plus means a space.
fn decoded(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(
        path: &str,
        asked: Option<&str>,
    ) -> Option<(Dialect, Option<String>, Option<String>, &'static str)> {
        match Route::of(path, asked) {
            Route::Rest(rest) => {
                let name = rest.resource.name();
                Some((rest.dialect, rest.tenant, rest.task, name))
            }
            _ => None,
        }
    }

    #[test]
    fn paths_of_both_versions_with_and_without_tenant() {
        let text = |text: &str| Some(text.to_owned());
        let one = Some("1.0");
        for (path, asked, found) in [
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
                (Dialect::V1, None, text("t"), "pushNotificationConfigs"),
            ),
        ] {
            assert_eq!(rest(path, asked), Some(found), "{path} {asked:?}");
        }
    }

    #[test]
    fn what_is_no_path_of_the_protocol() {
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
    fn queries_are_taken_apart() {
        let pairs: Vec<_> = query(Some("a=1&b=x+y%2Bz&&c&d=%ff&e=%4")).collect();
        let expected = [("a", "1"), ("b", "x y+z"), ("c", ""), ("d", "\u{fffd}"), ("e", "\u{fffd}")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(query(None).count(), 0);
    }
}
