//! The commands that ask a running host: `status`, `tasks`, `health`, and those of `executor` that change or show what is in
//! service.
//!
//! The host is the one at `--admin`, or at `admin.listen` of the configuration, and the token is that of `--token-env`, or
//! `admin.token`. A token of the configuration goes to the host of the configuration and to no other. What a host says is
//! printed without control characters, as everything from elsewhere.

pub(crate) mod executors;
pub(crate) mod health;
pub(crate) mod status;
pub(crate) mod tasks;
mod waterfall;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use secrecy::SecretString;
use serde_json::Value;
use talaria_config::HttpUrl;
use talaria_egress::{Bounds, Egress, Exchange, OriginClient, Request};

use crate::cli::Target;
use crate::config::{Config, ConfigError, Overrides, callable};

/// The longest wait for an answer; to load a version takes the longest.
const WITHIN: Duration = Duration::from_secs(300);

/// The longest that changes are watched.
const WATCHING: Duration = Duration::from_secs(24 * 3_600);

/// The largest upload, as the host takes it.
const UPLOAD: usize = 180 << 20;

/// A host that runs.
pub(crate) struct RunningHost {
    client: OriginClient,
    url: String,
}

/// Why a host was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
#[error(
    "no host answers at {url}: {why}; start it, name another with `--admin`, or look at files with `--offline`"
)]
pub(crate) struct NoHost {
    url: String,
    why: String,
}

// === impl RunningHost ===

impl RunningHost {
    /// The host that a command is for. It need not run.
    pub(crate) fn of(target: &Target, env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let mut token: Option<SecretString>;
        let own = |config: &Config| format!("http://{}", callable(config.admin.listen));
        let url = match &target.admin {
            Some(url) => {
                let url: HttpUrl = url.parse().map_err(|what: String| ConfigError::flag("--admin", what))?;
                let url = url.to_string();
                // A configuration that cannot be read has no token for this host.
                let config = Config::load(&overrides(target), env).ok();
                let config = config.filter(|config| target.config.is_some() || own(config) == url);
                token = config.and_then(|config| config.admin.token);
                url
            }
            None => {
                let config = Config::load(&overrides(target), env)?;
                if config.admin.listen.port() == 0 {
                    bail!("`admin.listen` lets the system choose the port; name the host with `--admin`");
                }
                token = config.admin.token.clone();
                own(&config)
            }
        };
        if let Some(name) = &target.token_env {
            let value = env(name).filter(|value| !value.is_empty());
            let missing = || ConfigError::flag("--token-env", format!("the variable {name} is not set"));
            token = Some(value.ok_or_else(missing)?.into());
        }
        Self::at(url, token)
    }

    fn at(url: String, token: Option<SecretString>) -> anyhow::Result<Self> {
        let origin = url.parse().with_context(|| format!("{url} is no address of a host"))?;
        let bounds =
            Bounds { timeout: WATCHING, request_body: UPLOAD, stream_bytes: usize::MAX, ..Bounds::default() };
        let client = Egress::new(talaria_egress::Config::default()).origin_client("command", &origin);
        let client = client.with_bounds(bounds);
        let client = match token {
            Some(token) => client.with_bearer(token).context("admin.token")?,
            None => client,
        };
        Ok(Self { client, url })
    }

    /// The address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether a host listens there, whatever it says.
    pub(crate) async fn is_there(&self) -> bool {
        let request = Request { timeout: Some(Duration::from_secs(5)), ..self.request("GET", "/healthz") };
        self.client.fetch(request).await.is_ok()
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(self.request("GET", path)).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str) -> anyhow::Result<Value> {
        self.ask(self.request(method, path)).await
    }

    /// Sends a body.
    pub(crate) async fn put(&self, path: &str, media_type: &str, body: Vec<u8>) -> anyhow::Result<Value> {
        let mut request = self.request("PUT", path);
        request.headers.push(("content-type".into(), media_type.into()));
        request.body = body.into();
        self.ask(request).await
    }

    /// The status and the body of the answer, whatever the status is. Fails if the host does not answer.
    pub(crate) async fn answer(&self, request: Request) -> Result<(u16, Value), NoHost> {
        let response = self.client.fetch(request).await.map_err(|error| self.silent(&error))?;
        Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_default()))
    }

    /// Opens the stream of changes.
    pub(crate) async fn watch(&self) -> anyhow::Result<Exchange> {
        let request = Request { timeout: Some(WATCHING), ..self.request("GET", "/events") };
        let exchange = self.client.open(request).await.map_err(|error| self.silent(&error))?;
        if exchange.status() != 200 {
            bail!("{} answered {}", self.url, exchange.status());
        }
        Ok(exchange)
    }

    async fn ask(&self, request: Request) -> anyhow::Result<Value> {
        let (status, answer) = self.answer(request).await?;
        if !(200..300).contains(&status) {
            let said = answer.pointer("/error/message").or(answer.pointer("/reason")).and_then(Value::as_str);
            bail!("{} ({} answered {status})", said.unwrap_or("no reason given"), self.url);
        }
        Ok(answer)
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        Request {
            method: method.into(),
            url: format!("{}{path}", self.url),
            headers: vec![("x-talaria-console".into(), "1".into())],
            timeout: Some(WITHIN),
            ..Request::default()
        }
    }

    fn silent(&self, error: &talaria_egress::Error) -> NoHost {
        NoHost { url: self.url.clone(), why: error.to_string() }
    }
}

fn overrides(target: &Target) -> Overrides {
    Overrides { file: target.config.clone(), listen: None, demo: false }
}

/// A text of an answer; empty if it is absent.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_default()
}

/// A time such as `1.2 s`, from milliseconds.
fn time(millis: f64) -> String {
    match millis {
        ..10.0 => format!("{millis:.1} ms"),
        ..1_000.0 => format!("{millis:.0} ms"),
        ..60_000.0 => format!("{:.1} s", millis / 1e3),
        ..3_600_000.0 => format!("{:.0} min {:02.0} s", (millis / 6e4).floor(), (millis / 1e3) % 60.0),
        _ => format!("{:.1} h", millis / 3.6e6),
    }
}

/// A size such as `1.2 MiB`.
fn size(bytes: f64) -> String {
    match bytes {
        ..1_024.0 => format!("{bytes:.0} B"),
        ..1_048_576.0 => format!("{:.1} KiB", bytes / 1_024.0),
        ..1_073_741_824.0 => format!("{:.1} MiB", bytes / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes / 1_073_741_824.0),
    }
}

/// A text of somebody else on one line, of so many characters at most.
fn line(text: &str, most: usize) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut line: String = clean.take(most + 1).collect();
    if line.chars().count() > most {
        line.pop();
        line.pop();
        line.push('…');
    }
    line
}

/// Rows with columns that are as wide as their longest cell; the last one is not padded.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people_and_texts_are_lines() {
        let times = [0.21, 42.0, 999.0, 1_234.0, 61_000.0, 7_200_000.0].map(time);
        assert_eq!(times, ["0.2 ms", "42 ms", "999 ms", "1.2 s", "1 min 01 s", "2.0 h"]);
        assert_eq!([12.0, 2_048.0, 3e6].map(size), ["12 B", "2.0 KiB", "2.9 MiB"]);
        assert_eq!(line("a\n\u{1b}b", 9), "a  b");
        assert_eq!(line("abcdef", 4), "abc…");
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(columns(&rows), "a    bb\nccc  d");
    }
}
