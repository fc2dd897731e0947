//! Checks the model behind the gateway: whether the gateway knows it, and whether the keys of its provider reach the gateway
//! and select the right provider.
//!
//! If the gateway checks itself (`/health/detailed`), its result counts. Otherwise the checks use the models that it lists and
//! its files; if these do not answer the question, the finding says so.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::{Examination, json};
use crate::gateway::{FORWARDED, Home};

/// The name under which hermes-agent lists itself, whatever its model is.
const ITSELF: &str = "hermes-agent";

/// The largest number of models that a finding names.
const NAMED: usize = 8;

/// The name of the findings about the provider.
const PROVIDER: &str = "provider";

impl Examination<'_> {
    /// Checks the state that the gateway reports. `own` is the model in the settings of the executor, `listed` are the models
    /// that the gateway lists.
    pub(super) async fn model(
        &mut self,
        base: &str,
        key: Option<SecretString>,
        own: Option<&str>,
        listed: &[String],
    ) {
        let root = base.strip_suffix("/v1").unwrap_or(base);
        let answer = self.probe.get(&format!("{root}/health/detailed"), key).await;
        let said = answer.ok().filter(|answer| answer.status == 200).map(|answer| json(&answer));
        let checks = said.as_ref().and_then(|said| said.pointer("/readiness/checks")?.as_object());
        let Some(checks) = checks else { return self.model_from_outside(own, listed) };
        let is_bad = |check: &Value| {
            let word = check.get("status").or(Some(check)).and_then(Value::as_str).unwrap_or_default();
            check.get("ok").and_then(Value::as_bool) == Some(false)
                || matches!(word, "error" | "fail" | "failed" | "unhealthy" | "missing")
        };
        let bad: Vec<_> =
            checks.iter().filter(|(_, check)| is_bad(check)).map(|(name, _)| name.as_str()).collect();
        if bad.is_empty() {
            return self.findings.ok("gateway state", "all that the gateway checks of itself is well");
        }
        let fix = if bad.contains(&"model") {
            "its model is unknown or has no provider: set a provider's key and `model` of the workspace; `hermes model` lists what it knows"
        } else {
            "look at the gateway's log"
        };
        self.findings.fail(
            "gateway state",
            format!("the gateway finds fault with its {}", bad.join(", ")),
            fix,
        );
    }

    /// Checks the model of a gateway that does not check itself.
    fn model_from_outside(&mut self, own: Option<&str>, listed: &[String]) {
        const NAME: &str = "model";
        let home = self.subject.home().map(|home| home.config());
        let configured = home.as_ref().and_then(|config| {
            let model = config.get("model")?;
            model.as_str().or_else(|| model.get("default")?.as_str()).map(str::to_owned)
        });
        let asked = own.map(str::to_owned).or_else(|| self.subject.model.clone());
        match &asked {
            Some(model) if listed.contains(model) => {
                return self.findings.ok(NAME, format!("the gateway lists {model}"));
            }
            // hermes-agent lists only itself and accepts every name; other gateways list their models.
            Some(model) if listed.iter().any(|known| known != ITSELF) => {
                let known = listed.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
                return self.findings.fail(
                    NAME,
                    format!("the gateway does not list the model {model}; it lists {known}"),
                    "set `model` of the workspace's config.yaml, or of the executor's settings, to one that it lists",
                );
            }
            _ => {}
        }
        if let (None, Some(home), None) =
            (&asked, self.subject.home().filter(|_| home.is_some()), &configured)
        {
            return self.findings.warn(
                NAME,
                format!("{} names no model, and nobody else does", home.path().join("config.yaml").display()),
                "choose one: `hermes model`, or `model` of the workspace's config.yaml",
            );
        }
        let which =
            asked.or(configured).map_or_else(|| "its model".to_owned(), |model| format!("the model {model}"));
        self.findings.warn(
            NAME,
            format!("it could not be told whether the gateway knows {which}: it has no /health/detailed, and lists only itself"),
            "send a message with `talaria send`; the answer \"[hermes-agent error 400]\" means that it does not, and `hermes model` lists what it knows",
        );
    }

    /// Checks whether the gateway has the same providers' keys as this process, and which provider they select.
    pub(super) fn provider(&mut self) {
        let home = self.subject.home();
        let theirs = |name: &str| home.as_ref()?.variable(name);
        // Without an `.env` there is nothing to compare: Talaria writes it when it first starts the gateway.
        let is_there = home.as_ref().is_some_and(Home::has_env);
        let missing: Vec<_> = FORWARDED
            .into_iter()
            .filter(|name| {
                let ours = self.subject.env.get(name);
                ours.is_some_and(|ours| theirs(name).is_none_or(|theirs| theirs.expose_secret() != ours))
            })
            .collect();
        if is_there && !missing.is_empty() {
            let fix = match self.subject.supervised {
                Some(_) => "restart talaria, which writes them there and starts the gateway anew",
                None => "write them there and restart the gateway, or set `[gateway]` so that talaria does",
            };
            let home =
                home.as_ref().map(|home| home.path().join(".env").display().to_string()).unwrap_or_default();
            let finding =
                format!("{} here, but not the same in {home}, where the gateway reads", missing.join(", "));
            self.findings.warn(PROVIDER, finding, fix);
        }
        self.codex(home.as_ref());
    }

    /// Checks whether the keys select a provider that accepts no keys.
    fn codex(&mut self, home: Option<&Home>) {
        let theirs = |name: &str| home?.variable(name);
        let set = |name: &str| self.subject.env.get(name).is_some() || theirs(name).is_some();
        let config = home.map(Home::config).unwrap_or_default();
        let written = config.pointer("/model/provider").and_then(Value::as_str).map(str::to_owned);
        let named = "HERMES_INFERENCE_PROVIDER";
        let named =
            self.subject.env.get(named).or_else(|| theirs(named).map(|name| name.expose_secret().to_owned()));
        let provider = named.or(written).filter(|provider| provider != "auto");
        let others = [
            "OPENROUTER_API_KEY",
            "ANTHROPIC_API_KEY",
            "NOUS_API_KEY",
            "HERMES_API_KEY",
            "HERMES_CUSTOM_BASE_URL",
        ];
        if set("OPENAI_API_KEY") && provider.is_none() && !others.into_iter().any(set) {
            self.findings.warn(
                PROVIDER,
                "with OPENAI_API_KEY alone the gateway chooses openai-codex, which takes no keys: \"401 Missing Authentication header\"",
                "set HERMES_INFERENCE_PROVIDER=openrouter, or custom with HERMES_CUSTOM_BASE_URL=https://api.openai.com/v1",
            );
        }
    }
}
