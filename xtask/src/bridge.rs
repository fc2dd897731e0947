//! The real binary, started as a server for clients under test.
//!
//! It gets a folder of its own with the configuration in it, a free port on loopback, and an environment that is empty but for
//! the cache of compiled components, which it shares with the tests. It is killed when it is dropped; its log stays in the
//! folder until then.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{cargo, read, run};

/// The name of the configuration file.
pub(crate) const CONFIG: &str = "talaria.toml";
const LOG: &str = "log";
/// A placeholder in a configuration for the address that the server will listen on.
pub(crate) const LISTEN: &str = "{listen}";

/// The binary, as the tests build it.
pub(crate) struct Binary {
    /// A link, so that a build that ends meanwhile does not change the binary that is started next.
    folder: TempDir,
    cache: PathBuf,
}

/// A running `talaria serve`.
pub(crate) struct Bridge {
    child: Child,
    folder: TempDir,
    url: String,
    /// Reserves its port.
    _reserved: Option<UdpSocket>,
}

// === impl Binary ===

impl Binary {
    /// Builds it, for use from below `target`.
    pub(crate) fn build(root: &Path, target: &Path) -> Result<Self> {
        let build = ["build", "--workspace", "--bin", "talaria"];
        run(cargo().args(build).current_dir(root))?;
        // The second time cargo returns at once and prints the path.
        let messages = read(cargo().args(build).args(["--message-format", "json"]).current_dir(root))?;
        let built = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
            .context("cargo did not report the path of the binary")?;
        let folder =
            TempDir::new_in(target).with_context(|| format!("cannot write to {}", target.display()))?;
        let link = folder.path().join("talaria");
        if fs::hard_link(&built, &link).is_err() {
            fs::copy(&built, &link).with_context(|| format!("cannot copy {}", built.display()))?;
        }
        Ok(Self { folder, cache: built.with_file_name("e2e-cache") })
    }

    /// The path of the binary.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join("talaria")
    }

    /// The folder of compiled components.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Starts it with a configuration and waits until it is ready.
    pub(crate) fn serve(&self, config: &str) -> Result<Bridge> {
        self.serve_with(config, &[])
    }

    /// The same, with secrets in its environment.
    pub(crate) fn serve_with(&self, config: &str, secrets: &[(&str, &str)]) -> Result<Bridge> {
        let folder = TempDir::new_in(self.folder.path())?;
        // A signed card contains the address, so it must be known before.
        let (listen, reserved) = match config.contains(LISTEN) {
            true => reserve().map(|(address, socket)| (address.to_string(), Some(socket)))?,
            false => ("127.0.0.1:0".to_owned(), None),
        };
        fs::write(folder.path().join(CONFIG), config.replace(LISTEN, &listen))?;
        let log = File::create(folder.path().join(LOG))?;
        let mut child = Command::new(self.program())
            .args(["serve", "--listen", &listen, "--output", "json"])
            .current_dir(folder.path())
            .env_clear()
            .env("XDG_CACHE_HOME", &self.cache)
            .envs(secrets.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start talaria")?;
        let banner = child
            .stdout
            .take()
            .context("talaria has no piped output")
            .and_then(|out| banner(BufReader::new(out)));
        let mut bridge = Bridge { child, folder, url: String::new(), _reserved: reserved };
        match banner {
            Ok(url) => bridge.url = url,
            Err(error) => bail!("{error}; its log:\n{}", bridge.log()),
        }
        Ok(bridge)
    }
}

/// Reserves an address that nobody else gets while the socket lives. `tests/fakes` reserves the ports of tests in the same way,
/// from another range.
fn reserve() -> Result<(SocketAddr, UdpSocket)> {
    let addresses = (19_000..20_000).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut free = addresses.filter_map(|address| Some((address, UdpSocket::bind(address).ok()?)));
    free.find(|(address, _)| TcpListener::bind(address).is_ok())
        .context("every port from 19000 to 19999 is taken")
}

/// Reads the document that the server prints when it is ready, and returns the address in it.
fn banner(out: impl BufRead) -> Result<String> {
    let mut text = String::new();
    for line in out.lines() {
        text.push_str(&line?);
        if let Ok(banner) = serde_json::from_str::<Value>(&text) {
            let url = banner.get("url").and_then(Value::as_str);
            return url.map(str::to_owned).context("the banner of talaria has no url");
        }
    }
    bail!("talaria ended before it was ready")
}

// === impl Bridge ===

impl Bridge {
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The file with its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join(CONFIG)
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
