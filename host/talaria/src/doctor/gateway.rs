//! The gateway behind the default executor: is it there, does it take our key, does it have what it needs.

use std::net::IpAddr;
use std::path::PathBuf;

use secrecy::ExposeSecret as _;
use serde_json::Value;
use talaria_hermes::gateway::{SHORTEST_KEY, config_in, home, key_in, likely_cause, plugin_problem};

use super::{Examination, header, json};
use crate::config::secret_by_name;

impl Examination<'_> {
    pub(super) async fn gateway(&mut self) {
        let settings: Vec<(String, serde_json::Map<String, Value>)> = (self.config.executors.fixed.iter())
            .filter(|(name, _)| self.is_used(name.as_str()))
            .map(|(name, executor)| (name.as_str().to_owned(), executor.settings.clone()))
            .collect();
        for (name, settings) in &settings {
            let text = |key: &str| settings.get(key).and_then(Value::as_str);
            match name.as_str() {
                "chat-completions" | "hermes-runs" => {
                    if let Some(base) = text("base_url") {
                        self.api(base, text("model").filter(|model| !model.is_empty())).await;
                    }
                }
                "plugin-callback" => {
                    if let Some(health) = text("health_url") {
                        self.plugin(health).await;
                    }
                }
                _ => {}
            }
        }
        self.provider();
    }

    /// Whether an executor takes turns: the default one, and its fallback.
    fn is_used(&self, name: &str) -> bool {
        let default = &self.config.executors.default;
        let fallback =
            self.config.executors.fixed.get(default).and_then(|executor| executor.fallback.as_ref());
        default.as_str() == name || fallback.is_some_and(|fallback| fallback.as_str() == name)
    }

    /// The gateway's home, as far as it can be known.
    pub(super) fn home(&self) -> Option<PathBuf> {
        let supervised = self.config.gateway.as_ref().map(|gateway| gateway.launch.home.clone());
        supervised
            .or_else(|| home(None, None, std::path::Path::new(""), &self.env).filter(|home| home.is_dir()))
    }

    /// What the gateway's log says of why it is not up, with the log's name.
    fn cause(&self) -> Option<String> {
        let supervised = self.config.gateway.as_ref().map(|gateway| gateway.launch.log.clone());
        let logs = supervised.into_iter().chain(self.home().map(|home| home.join("logs/gateway.log")));
        logs.chain([PathBuf::from("/var/log/hermes-gateway.log")])
            .find_map(|log| Some(format!("{} says why, probably: {}", log.display(), likely_cause(&log)?)))
    }

    async fn api(&mut self, base: &str, model: Option<&str>) {
        let base = base.trim_end_matches('/').to_owned();
        let health = match self.get(&format!("{base}/health"), None).await {
            Ok(answer) if answer.status == 200 => answer,
            Ok(answer) => {
                let finding = format!("{base} answers {} to a question for its health", answer.status);
                return self.fail(
                    "gateway",
                    finding,
                    "correct HERMES_API_BASE; something else listens there",
                );
            }
            Err(error) => {
                let fix = match &self.config.gateway {
                    Some(gateway) => {
                        format!("`talaria serve` starts it; its log is {}", gateway.launch.log.display())
                    }
                    None => format!(
                        "start it (`hermes gateway run`), set `[gateway]` so that talaria does, or correct HERMES_API_BASE (now {base})"
                    ),
                };
                let fix = self.cause().unwrap_or(fix);
                return self.fail("gateway", format!("nothing answers at {base}: {error}"), fix);
            }
        };
        let version =
            json(&health).get("version").and_then(Value::as_str).unwrap_or("of unknown version").to_owned();
        self.ok("gateway", format!("hermes-agent {version} answers at {base}"));
        self.clock(header(&health, "date"), &base);
        self.key(&base, model).await;
    }

    async fn key(&mut self, base: &str, model: Option<&str>) {
        const NAME: &str = "gateway key";
        let given = match &self.config.gateway {
            Some(gateway) => Some(gateway.settings.key.clone()),
            None => secret_by_name("API_SERVER_KEY", &self.env).ok().flatten(),
        };
        let Some(key) = given else {
            return self.fail(
                NAME,
                "API_SERVER_KEY is not set, and the gateway asks for it",
                "set it to the value in the gateway's .env",
            );
        };
        if key.expose_secret().len() < SHORTEST_KEY {
            let finding = format!(
                "API_SERVER_KEY has less than {SHORTEST_KEY} characters; the gateway does not take such a key"
            );
            return self.fail(NAME, finding, "make a longer one: `head -c 32 /dev/urandom | base64 | tr -d '/+='`, here and for the gateway");
        }
        match self.get(&format!("{base}/models"), Some(key.clone())).await {
            Ok(answer) if answer.status == 401 || answer.status == 403 => {
                let other = self.home().and_then(|home| Some((home.clone(), key_in(&home)?)));
                let differs = other.filter(|(_, other)| other.expose_secret() != key.expose_secret());
                let finding = match differs {
                    Some((home, _)) => format!(
                        "the gateway refuses our key: API_SERVER_KEY here is another than in {}",
                        home.join(".env").display()
                    ),
                    None => "the gateway refuses our key".to_owned(),
                };
                self.fail(NAME, finding, "give both processes the same API_SERVER_KEY and restart both");
            }
            Ok(answer) if answer.status == 200 => {
                self.ok(NAME, "the gateway takes our key");
                let listed = json(&answer);
                let listed = listed.get("data").and_then(Value::as_array).into_iter().flatten();
                let listed: Vec<_> =
                    listed.filter_map(|one| Some(one.get("id")?.as_str()?.to_owned())).collect();
                self.model(base, key, model, &listed).await;
            }
            Ok(answer) => self.warn(
                NAME,
                format!("the gateway answers {} to a question for its models", answer.status),
                "look at its log",
            ),
            Err(error) => self.warn(NAME, format!("the gateway does not answer: {error}"), "look at its log"),
        }
    }

    async fn plugin(&mut self, health: &str) {
        const NAME: &str = "plugin";
        match self.get(health, None).await {
            Ok(answer) if answer.status == 200 => self.ok(NAME, format!("the plugin answers at {health}")),
            answer => {
                let why = answer.map_or_else(|error| error, |answer| format!("HTTP {}", answer.status));
                let trouble = self.home().and_then(|home| plugin_problem(&home));
                let (what, fix) = trouble.unwrap_or_else(|| {
                    ("its configuration seems right".into(), "restart the gateway; if that does not help, its log says why the plugin did not load".into())
                });
                self.fail(NAME, format!("nothing answers at {health} ({why}): {what}"), fix);
            }
        }
        let Some(callback) = &self.config.callback else { return };
        let host =
            health.split("://").nth(1).and_then(|rest| rest.split(['/', ':']).next()).unwrap_or_default();
        let near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let (listen, told) = (callback.listen, callback.reply_url(callback.listen));
        let told_loopback =
            told.contains("://127.") || told.contains("://localhost") || told.contains("://[::1]");
        if !near && (listen.ip().is_loopback() || told_loopback) {
            let finding = format!("the gateway at {host} cannot reach {told}, where it is told to answer");
            return self.fail("callback", finding, "set `callback.listen` beyond loopback and `callback.url` to an address that the gateway reaches");
        }
        // A gateway that talaria starts is told at the start.
        let said = self.home().filter(|_| self.config.gateway.is_none()).map(|home| config_in(&home));
        let said = said.as_ref().and_then(|config| {
            config.pointer("/platforms/molecule-a2a/extra/callback_url").and_then(Value::as_str)
        });
        match said.filter(|said| *said != told) {
            Some(said) => self.fail(
                "callback",
                format!("the gateway's config.yaml tells the plugin to answer at {said}, and this bridge expects answers at {told}"),
                format!("write `callback_url: {told}` there and restart the gateway, or set `callback.listen` and `callback.url`"),
            ),
            None => self.ok("callback", format!("the gateway is told to answer at {told}")),
        }
    }
}
