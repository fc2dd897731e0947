//! What a gateway can do: runs, or only the chat route, as gateways before runs did.
//!
//! The gateway is asked before every turn and the answer is not remembered, so that an upgrade, or a downgrade, takes
//! effect at once. That costs one call, which the gateway answers from memory, for a turn that takes seconds.

use serde_json::Value;
use talaria_guest::{Failure, http};

use super::Gateway;
use crate::hermes_agent::{self, error_status, unreachable};
use crate::{is_success, warn};

/// What a gateway must have for runs. Approvals are not among it: a gateway without them asks for none.
const FEATURES: [&str; 4] = ["run_submission", "run_status", "run_events_sse", "run_stop"];

/// How a turn can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capabilities {
    /// As a run.
    Runs,
    /// As a chat completion: the gateway lists its features, and this one is missing.
    Lacks(&'static str),
    /// As a chat completion: the gateway does not list its features.
    Unlisted,
    /// The grant does not include the call that would tell.
    Denied,
}

impl Capabilities {
    /// Asks the gateway.
    ///
    /// # Errors
    /// A gateway that cannot be reached, or answers with an error.
    pub fn of(gateway: &Gateway) -> Result<Self, Failure> {
        let response = match gateway.get("/capabilities") {
            Ok(response) => response,
            Err(error) if error.kind == http::ErrorKind::Denied => return Ok(Self::Denied),
            Err(error) => return Err(unreachable(&error)),
        };
        if response.status == 404 {
            return Ok(Self::Unlisted);
        }
        if !is_success(response.status) {
            return Err(error_status(response.status, &response.body));
        }
        Ok(Self::parse(&response.body))
    }

    fn parse(body: &[u8]) -> Self {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(features) = answer.get("features").and_then(Value::as_object) else {
            return Self::Unlisted;
        };
        let lacking = FEATURES.into_iter().find(|name| features.get(*name) != Some(&Value::Bool(true)));
        lacking.map_or(Self::Runs, Self::Lacks)
    }

    /// Proves that the gateway takes turns. A list of features is proof enough. Without one the gateway must list its
    /// models, as every OpenAI-shaped API does, because an address that answers 404 to everything is not a gateway.
    ///
    /// # Errors
    /// A [`Failure`] that says what to fix.
    pub fn prove(self, gateway: &Gateway) -> Result<(), Failure> {
        if self != Self::Unlisted {
            return Ok(());
        }
        match gateway.get("/models") {
            Ok(response) if is_success(response.status) => Ok(()),
            Ok(response) if response.status == 404 => Err(hermes_agent::error(
                "neither /capabilities nor /models is there; is `base_url` the gateway's API?",
            )),
            Ok(response) => Err(error_status(response.status, &response.body)),
            Err(error) if error.kind == http::ErrorKind::Denied => Ok(()),
            Err(error) => Err(unreachable(&error)),
        }
    }

    /// Logs what an older gateway costs.
    pub fn log(self) {
        let why = match self {
            Self::Runs | Self::Denied => return,
            Self::Lacks(feature) => format!("features.{feature} is not true"),
            Self::Unlisted => "it lists no features".into(),
        };
        warn(&format!(
            "the gateway offers no runs ({why}); turns go out as chat completions, without approvals and without a \
             run that outlives a restart"
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_need_every_feature_that_they_are_made_of() {
        let all =
            json!({ "run_submission": true, "run_status": true, "run_events_sse": true, "run_stop": true });
        let without = |name: &str, value: Value| {
            let mut features = all.clone();
            features.as_object_mut().unwrap().insert(name.into(), value);
            features
        };
        for (features, expected) in [
            (all.clone(), Capabilities::Runs),
            (without("approval_events", false.into()), Capabilities::Runs),
            (without("run_stop", false.into()), Capabilities::Lacks("run_stop")),
            (without("run_status", "true".into()), Capabilities::Lacks("run_status")),
            (json!({}), Capabilities::Lacks("run_submission")),
            (json!([]), Capabilities::Unlisted),
            (Value::Null, Capabilities::Unlisted),
        ] {
            let body = json!({ "features": features }).to_string();
            assert_eq!(Capabilities::parse(body.as_bytes()), expected, "{body}");
        }
        assert_eq!(Capabilities::parse(b"<html>"), Capabilities::Unlisted);
    }
}
