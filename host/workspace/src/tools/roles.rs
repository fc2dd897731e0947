//! What the roles in `config.yaml` allow: `rbac: {roles: [operator], allowed_actions: {ROLE: [ACTION, …]}}`.
//!
//! The roles and their actions are those of the platform's own runtime. Without `rbac` the role is `operator`, which may do
//! everything. An unknown role without `allowed_actions` may do nothing.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// What a tool does, as roles see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Delegate,
    Approve,
    MemoryRead,
    MemoryWrite,
    /// What every role may do.
    Look,
}

const ALL: [&str; 4] = ["delegate", "approve", "memory.read", "memory.write"];

// === impl Action ===

impl Action {
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Delegate => Some("delegate"),
            Self::Approve => Some("approve"),
            Self::MemoryRead => Some("memory.read"),
            Self::MemoryWrite => Some("memory.write"),
            Self::Look => None,
        }
    }

    /// Checks that the roles of a `config.yaml` allow it.
    pub(super) fn check(self, manifest: &Map<String, Value>) -> Result<(), Refusal> {
        let Some(action) = self.word() else { return Ok(()) };
        let rbac = manifest.get("rbac").filter(|rbac| !rbac.is_null());
        let Some(rbac) = rbac else { return Ok(()) };
        let roles: Vec<&str> = match rbac.get("roles") {
            None | Some(Value::Null) => vec!["operator"],
            Some(Value::String(role)) => vec![role],
            Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).collect(),
            Some(_) => Vec::new(),
        };
        let allows = |role: &&str| match rbac.get("allowed_actions").and_then(|all| all.get(*role)) {
            Some(Value::Array(actions)) => actions.iter().any(|known| known == action),
            Some(_) => false,
            None => built_in(role).contains(&action),
        };
        if roles.iter().any(allows) {
            return Ok(());
        }
        Err(Refusal::new(
            format!("the action `{action}` is not allowed for the roles {roles:?} in config.yaml"),
            "do not try again; tell the user that the workspace's role does not allow it",
        ))
    }
}

fn built_in(role: &str) -> Vec<&'static str> {
    let all_but = |action: &str| ALL.into_iter().filter(|known| *known != action).collect();
    match role {
        "admin" | "operator" => ALL.to_vec(),
        "read-only" | "memory-readonly" => vec!["memory.read"],
        "no-delegation" => all_but("delegate"),
        "no-approval" => all_but("approve"),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_allow_what_the_platforms_runtime_allows() {
        let may = |manifest: Value, action: Action| action.check(manifest.as_object().unwrap()).is_ok();
        let role = |role: &str| json!({ "rbac": { "roles": [role] } });
        use Action::*;
        for action in [Delegate, Approve, MemoryRead, MemoryWrite] {
            assert!(
                may(json!({}), action) && may(json!({ "rbac": {} }), action) && may(role("admin"), action)
            );
            assert_eq!(may(role("read-only"), action), action == MemoryRead);
            assert_eq!(may(role("no-delegation"), action), action != Delegate);
            assert!(!may(role("stranger"), action) && !may(json!({ "rbac": { "roles": 7 } }), action));
        }
        assert!(may(role("stranger"), Look));
        let own = json!({ "rbac": { "roles": ["clerk", "operator"], "allowed_actions": { "clerk": ["approve"], "operator": [] } } });
        assert!(may(own.clone(), Approve));
        assert!(!may(own, Delegate), "allowed_actions replaces the built-in role");
    }
}
