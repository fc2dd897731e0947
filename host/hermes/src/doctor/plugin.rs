//! Checks the platform plugin: whether it answers, and whether its replies reach the callback listener.

use std::net::IpAddr;

use serde_json::Value;

use super::{Callback, Examination};
use crate::gateway::plugin_problem;
use crate::plugin::SHARED_SECRET;

impl Examination<'_> {
    /// Checks the plugin, whose health check is at `health`, and the callbacks from it.
    pub(super) async fn plugin(&mut self, health: &str) {
        const NAME: &str = "plugin";
        match self.probe.get(health, None).await {
            Ok(answer) if answer.status == 200 => {
                self.findings.ok(NAME, format!("the plugin answers at {health}"))
            }
            answer => {
                let why = answer.map_or_else(
                    |error| format!("nothing answers at {health} ({error})"),
                    |answer| format!("{health} answers {}", answer.status),
                );
                let problem = self.subject.home().and_then(|home| plugin_problem(&home));
                let (what, fix) = problem.unwrap_or_else(|| {
                    ("its configuration seems right".into(), "restart the gateway; if that does not help, its log says why the plugin did not load".into())
                });
                self.findings.fail(NAME, format!("{why}: {what}"), fix);
            }
        }
        let Some(callback) = &self.subject.callback else { return };
        self.callback(callback, health);
    }

    /// Checks whether the plugin at `health` posts its replies to the callback listener.
    fn callback(&mut self, callback: &Callback, health: &str) {
        const NAME: &str = "callback";
        let host =
            health.split("://").nth(1).and_then(|rest| rest.split(['/', ':']).next()).unwrap_or_default();
        let near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let Callback { listen, url, has_secret } = callback;
        let is_loopback = listen.ip().is_loopback()
            || ["://127.", "://localhost", "://[::1]"].iter().any(|loopback| url.contains(loopback));
        if !near && is_loopback {
            let finding = format!(
                "a gateway on another machine ({host}) cannot reach {url}, where it is told to answer"
            );
            return self.findings.fail(NAME, finding, "set `callback.listen` beyond loopback and `callback.url` to an address that the gateway reaches");
        }
        // A gateway that Talaria starts is given the URL at its start.
        if self.subject.supervised.is_some() {
            return self.findings.ok(NAME, format!("`talaria serve` tells the gateway to answer at {url}"));
        }
        let configured = self.subject.home().map(|home| home.config());
        let configured = configured.as_ref().and_then(|config| {
            config.pointer("/platforms/molecule-a2a/extra/callback_url").and_then(Value::as_str)
        });
        match configured {
            Some(configured) if configured != url => self.findings.fail(
                NAME,
                format!("the gateway's config.yaml tells the plugin to answer at {configured}, and this bridge expects answers at {url}"),
                format!("write `callback_url: {url}` there and restart the gateway, or set `callback.listen` and `callback.url`"),
            ),
            Some(_) => self.findings.ok(NAME, format!("the gateway's config.yaml says to answer at {url}")),
            None if !has_secret => self.findings.warn(
                NAME,
                format!("the gateway is told to answer at {url} without a secret; what it posts there after a restart of its own is rejected"),
                format!("set {SHARED_SECRET} here and `shared_secret` in the gateway's config.yaml"),
            ),
            // The plugin answers where each message asks it to, unless its configuration says otherwise.
            None => self.findings.ok(NAME, format!("each message asks for an answer at {url}; no config.yaml says otherwise")),
        }
    }
}
