//! Checks the API of the gateway: whether it answers, and whether it accepts our key.

use secrecy::ExposeSecret as _;
use serde_json::Value;
use talaria_config::secret;

use super::{Examination, json};
use crate::gateway::{KEY, SHORTEST_KEY};

impl Examination<'_> {
    /// Checks the API of the gateway at `base`. `model` is the one in the settings of the executor.
    pub(super) async fn api(&mut self, base: &str, model: Option<&str>) {
        let base = base.trim_end_matches('/').to_owned();
        let health = match self.probe.get(&format!("{base}/health"), None).await {
            Ok(answer) if answer.status == 200 => answer,
            Ok(answer) => {
                let finding = format!("{base} answers {} to a question for its health", answer.status);
                return self.findings.fail(
                    "gateway",
                    finding,
                    "correct HERMES_API_BASE; something else listens there",
                );
            }
            Err(error) => {
                let fix = match self.subject.supervised {
                    Some(gateway) => {
                        format!("`talaria serve` starts it; its log is {}", gateway.launch.log.display())
                    }
                    None => format!(
                        "start it (`hermes gateway run`), set `[gateway]` so that talaria does, or correct HERMES_API_BASE (now {base})"
                    ),
                };
                let fix = self.subject.cause().unwrap_or(fix);
                return self.findings.fail("gateway", format!("nothing answers at {base}: {error}"), fix);
            }
        };
        let said = json(&health);
        let text = |key: &str| said.get(key).and_then(Value::as_str);
        // Other gateways have a health check too.
        let who = match (text("platform"), text("version")) {
            (Some("hermes-agent"), Some(version)) => format!("hermes-agent {version}"),
            (Some("hermes-agent"), None) => "hermes-agent".to_owned(),
            _ => "a gateway that does not say that it is hermes-agent".to_owned(),
        };
        self.findings.ok("gateway", format!("{who} answers at {base}"));
        self.findings.clock(&health, &base);
        self.key(&base, model).await;
    }

    /// Asks the gateway something that needs a key, with the key that turns use, if there is one.
    async fn key(&mut self, base: &str, model: Option<&str>) {
        const NAME: &str = "gateway key";
        let given = match self.subject.supervised {
            Some(gateway) => Some(gateway.settings.key.clone()),
            None => secret::by_name(KEY, &self.subject.env).ok().flatten(),
        };
        let is_short = given.as_ref().is_some_and(|key| key.expose_secret().len() < SHORTEST_KEY);
        match (self.probe.get(&format!("{base}/models"), given.clone()).await, given) {
            (Ok(answer), None) if matches!(answer.status, 401 | 403) => self.findings.fail(
                NAME,
                format!("API_SERVER_KEY is not set, and the gateway asks for it ({})", answer.status),
                "set it to the value in the gateway's .env",
            ),
            (Ok(answer), Some(_)) if matches!(answer.status, 401 | 403) && is_short => {
                let finding = format!(
                    "the gateway refuses our key: API_SERVER_KEY has less than {SHORTEST_KEY} characters"
                );
                self.findings.fail(NAME, finding, "make a longer one: `head -c 32 /dev/urandom | base64 | tr -d '/+='`, here and for the gateway");
            }
            (Ok(answer), Some(key)) if matches!(answer.status, 401 | 403) => {
                let other =
                    self.subject.home().and_then(|home| Some((home.path().join(".env"), home.key()?)));
                let differs = other.filter(|(_, other)| other.expose_secret() != key.expose_secret());
                let finding = match differs {
                    Some((file, _)) => format!(
                        "the gateway refuses our key: API_SERVER_KEY here is another than in {}",
                        file.display()
                    ),
                    None => "the gateway refuses our key".to_owned(),
                };
                self.findings.fail(
                    NAME,
                    finding,
                    "give both processes the same API_SERVER_KEY and restart both",
                );
            }
            (Ok(answer), key) if answer.status == 200 => {
                let finding = match &key {
                    // A gateway that asks for no key takes any, so only the answer without one tells.
                    Some(_) => match self.probe.get(&format!("{base}/models"), None).await {
                        Ok(answer) if answer.status == 200 => {
                            "the gateway lists its models without a key; whether it takes ours is not known"
                        }
                        _ => "the gateway takes our key",
                    },
                    None => "the gateway asks for no key",
                };
                self.findings.ok(NAME, finding);
                let listed = json(&answer);
                let listed = listed.get("data").and_then(Value::as_array).into_iter().flatten();
                let listed: Vec<_> =
                    listed.filter_map(|one| Some(one.get("id")?.as_str()?.to_owned())).collect();
                self.model(base, key, model, &listed).await;
            }
            (Ok(answer), _) => self.findings.warn(
                NAME,
                format!("the gateway answers {} to a question for its models", answer.status),
                "look at its log",
            ),
            (Err(error), _) => {
                self.findings.warn(NAME, format!("the gateway does not answer: {error}"), "look at its log")
            }
        }
    }
}
