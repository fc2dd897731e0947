//! What a gateway offers: runs, or only the chat route, as gateways before runs did.
//!
//! It is asked before every turn and not remembered, so that a gateway that was upgraded, or downgraded, is taken for what
//! it is. That costs a call that the gateway answers from memory, for a turn that takes seconds.

use serde_json::Value;
use talaria_guest::{Failure, http, log};
use talaria_upstream::hermes_agent::{self, error_status, unreachable};
use talaria_upstream::is_success;

use crate::gateway::Gateway;

/// What a gateway must have for runs. Approvals are not among it: a gateway without them asks for none.
const FEATURES: [&str; 4] = ["run_submission", "run_status", "run_events_sse", "run_stop"];

/// How a turn can be sent.
pub(crate) enum Offer {
    Runs,
    /// As a chat completion, because a gateway with that list of features lacks this one.
    Chat(&'static str),
    /// The same, because there is no such list.
    Unlisted,
}

impl Offer {
    /// Asks the gateway. A grant without that call leaves it at runs.
    pub(crate) fn of(gateway: &Gateway) -> Result<Self, Failure> {
        let response = match gateway.get("/capabilities") {
            Ok(response) => response,
            Err(error) if error.kind == http::ErrorKind::Denied => return Ok(Self::Runs),
            Err(error) => return Err(unreachable(&error)),
        };
        if response.status == 404 {
            return Ok(Self::Unlisted);
        }
        if !is_success(response.status) {
            return Err(error_status(response.status, &response.body));
        }
        let answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let Some(features) = answer.get("features").and_then(Value::as_object) else {
            return Ok(Self::Unlisted);
        };
        let lacking = FEATURES.into_iter().find(|name| features.get(*name) != Some(&Value::Bool(true)));
        Ok(lacking.map_or(Self::Runs, Self::Chat))
    }

    /// Proves that the gateway takes turns. A list of features does; what has none must have models, which every
    /// OpenAI-shaped API has, since an address that answers 404 to everything is no gateway.
    pub(crate) fn prove(&self, gateway: &Gateway) -> Result<(), Failure> {
        if !matches!(self, Self::Unlisted) {
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

    /// Tells the operator what an older gateway costs.
    pub(crate) fn report(&self) {
        let why = match self {
            Self::Runs => return,
            Self::Chat(lacking) => format!("features.{lacking} is not true"),
            Self::Unlisted => "it lists no features".into(),
        };
        let line = format!(
            "the gateway offers no runs ({why}); turns go out as chat completions, without approvals and without a \
             run that outlives a restart"
        );
        log::write(log::Level::Warn, &line, None);
    }
}
