//! `talaria executor rollback`: asks the running host to go back to the version before.
//!
//! Only the host knows which version is in service, so this calls its admin server, with the address and the token of the
//! same configuration.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;
use talaria_egress::{Egress, Request};

use crate::config::{Config, ExecutorName};

/// The longest that loading a version may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The version that is in service now.
#[derive(Debug, Serialize)]
pub(crate) struct RolledBack {
    executor: Value,
}

impl RolledBack {
    pub(crate) async fn ask(config: &Config, name: &ExecutorName) -> anyhow::Result<Self> {
        let host = format!("http://{}", config.admin.listen);
        let Some(token) = config.admin.token.clone() else {
            bail!("changing executors needs a token: set `admin.token`, and restart the host with it");
        };
        let client = Egress::new(talaria_egress::Config::default())
            .origin_client("rollback", &host.parse().context("admin.listen")?)
            .with_bearer(token)
            .context("admin.token")?;
        let request = Request {
            method: "POST".into(),
            url: format!("{host}/executors/{name}/rollback"),
            timeout: Some(WITHIN),
            ..Request::default()
        };
        let response = client
            .fetch(request)
            .await
            .with_context(|| format!("no host answers at {host} (`admin.listen`)"))?;
        let mut answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        if response.status != 200 {
            let said = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or("no reason given");
            bail!("{said} ({host} answered {})", response.status);
        }
        Ok(Self { executor: answer.get_mut("executor").map(Value::take).unwrap_or_default() })
    }
}

impl fmt::Display for RolledBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |path: &str| self.executor.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let digest = text("/current/digest");
        write!(
            f,
            "{} is back at {} {}, sha256:{}: {}",
            text("/name"),
            text("/current/component"),
            text("/current/version"),
            digest.get(..12).unwrap_or(digest),
            text("/current/readiness/state"),
        )
    }
}
