//! The gateway's part of `talaria doctor`: whether the gateway answers, accepts our key, and has what it needs.
//!
//! Only what takes turns is checked: the default executor and its fallback. Nothing is changed or started. Each request has a
//! time limit, and what cannot be known from outside is reported as unknown. The binary checks the machine with the same
//! [`Findings`] and [`Probe`], and prints.

mod api;
mod auxiliary;
mod findings;
mod model;
mod plugin;
mod tools;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use talaria_config::Env;

pub use findings::{Finding, Findings, Probe, Verdict, json};

use crate::gateway::{self, Home, likely_cause};
use crate::{CHAT_COMPLETIONS, PLUGIN_CALLBACK};

/// What the checks of the gateway need from the configuration of the host.
pub struct Subject<'a> {
    /// The environment variables.
    pub env: Env<'a>,
    /// The executors.
    pub executors: &'a talaria_executors::Config,
    /// The gateway that this host supervises, if any.
    pub supervised: Option<&'a gateway::Config>,
    /// The callback listener, if any.
    pub callback: Option<Callback>,
    /// The model of the workspace, if it names one.
    pub model: Option<String>,
    /// The address of the tools that this host serves to the agent, if any.
    pub tools: Option<String>,
}

/// The callback listener.
pub struct Callback {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The URL that upstreams post to.
    pub url: String,
    /// Whether callbacks must carry a secret.
    pub has_secret: bool,
}

/// The checks in progress.
struct Examination<'a> {
    subject: &'a Subject<'a>,
    probe: &'a Probe,
    findings: &'a mut Findings,
}

// === impl Subject ===

impl Subject<'_> {
    /// Checks the gateway behind the executors that take turns.
    pub async fn examine(&self, probe: &Probe, findings: &mut Findings) {
        let mut examination = Examination { subject: self, probe, findings };
        for (name, executor) in &self.executors.fixed {
            if !self.takes_turns(name.as_str()) {
                continue;
            }
            let text = |key: &str| executor.settings.get(key).and_then(Value::as_str);
            match name.as_str() {
                CHAT_COMPLETIONS | "hermes-runs" => {
                    if let Some(base) = text("base_url") {
                        examination.api(base, text("model").filter(|model| !model.is_empty())).await;
                    }
                }
                PLUGIN_CALLBACK => {
                    if let Some(health) = text("health_url") {
                        examination.plugin(health).await;
                    }
                }
                _ => {}
            }
        }
        examination.provider();
        examination.auxiliary();
        if let Some(tools) = &self.tools {
            examination.tools(tools);
        }
    }

    /// The home of the gateway, if it is known.
    pub fn home(&self) -> Option<Home> {
        let found = || gateway::home(None, None, Path::new(""), &self.env).filter(|home| home.is_dir());
        let supervised = self.supervised.map(|gateway| gateway.launch.files());
        supervised.or_else(|| found().map(Home::found))
    }

    /// Whether an executor takes turns: the default one and its fallback do.
    fn takes_turns(&self, name: &str) -> bool {
        let default = &self.executors.default;
        let fallback = self.executors.fixed.get(default).and_then(|executor| executor.fallback.as_ref());
        default.as_str() == name || fallback.is_some_and(|fallback| fallback.as_str() == name)
    }

    /// Why the gateway is not up according to its log, with the name of the log.
    fn cause(&self) -> Option<String> {
        let system = PathBuf::from("/var/log/hermes-gateway.log");
        let supervised = self.supervised.map(|gateway| gateway.launch.log.clone());
        let home = self.home().unwrap_or_else(|| Home::found(&system));
        let logs = supervised.into_iter().chain([home.path().join("logs/gateway.log"), system]);
        logs.into_iter().find_map(|log| {
            Some(format!("{} says why, probably: {}", log.display(), likely_cause(&home, &log)?))
        })
    }
}
