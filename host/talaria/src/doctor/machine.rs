//! Checks this machine: ports, store, volumes, and the platform.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use talaria_hermes::CALLBACK_PATH;
use talaria_hermes::doctor::{Findings, Probe, json};
use talaria_store::{OpenError, Owner};
use tokio::net::TcpListener;

use crate::config::{Config, StoreUrl};

/// The checks of this machine in progress.
pub(super) struct Examination<'a> {
    pub(super) config: &'a Config,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// The home of the gateway, if it is known.
    pub(super) gateway_home: Option<PathBuf>,
    pub(super) probe: &'a Probe,
    pub(super) findings: &'a mut Findings,
}

impl Examination<'_> {
    pub(super) async fn run(&mut self) {
        self.port("A2A port", self.config.a2a.listen, "`a2a.listen` or --listen").await;
        if let Some(callback) = &self.config.callback {
            self.port("callback port", callback.listen, "`callback.listen` or MOLECULE_A2A_CALLBACK_PORT")
                .await;
        }
        self.admin_port().await;
        self.callers();
        self.tools_port().await;
        self.store();
        self.volumes();
        self.required_variables();
        self.platform().await;
        self.tool_use().await;
        self.tool_servers().await;
    }

    /// Checks the variables that the workspace, or its model, says that it needs.
    fn required_variables(&mut self) {
        const NAME: &str = "required variables";
        let Some(workspace) = &self.config.workspace else { return };
        let current = workspace.assembly.current();
        let required = current.manifest.required_env(current.workspace.model.as_deref());
        let missing: Vec<_> =
            required.iter().filter(|name| (self.env)(name).is_none_or(|v| v.is_empty())).collect();
        if missing.is_empty() {
            return;
        }
        let names = missing.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        self.findings.warn(
            NAME,
            format!("config.yaml of the workspace requires {names}, which is not set"),
            "set it as a secret of the workspace; docs/providers.md says which provider needs which variable",
        );
    }

    /// Checks that a port is free, or that Talaria already listens on it.
    async fn port(&mut self, name: &'static str, at: SocketAddr, key: &str) {
        let error = match TcpListener::bind(at).await {
            Ok(_) => return self.findings.ok(name, format!("{at} is free")),
            Err(error) => error,
        };
        let here = local(at);
        let card = self.probe.get(&format!("http://{here}/.well-known/agent-card.json"), None).await;
        let ours = card.is_ok_and(|card| {
            json(&card).get("name").and_then(serde_json::Value::as_str)
                == Some(self.config.a2a.card.current().name.as_str())
        });
        let path = self.config.callback.as_ref().map_or(CALLBACK_PATH, |callback| callback.path());
        let callback = self.probe.get(&format!("http://{here}{path}"), None).await;
        // The callback listener answers 405 to a GET.
        if ours || (name == "callback port" && callback.is_ok_and(|answer| answer.status == 405)) {
            return self.findings.ok(name, format!("talaria already listens on {at}"));
        }
        self.findings.fail(
            name,
            format!("cannot listen on {at}: {error}"),
            format!("stop the process that listens there, or choose another address with {key}"),
        );
    }

    /// Checks the port of the admin server. If it is taken and was not configured, Talaria serves without that server.
    async fn admin_port(&mut self) {
        const NAME: &str = "operator's port";
        let (at, chosen) = (self.config.admin.listen, self.config.admin.chosen);
        let error = match TcpListener::bind(at).await {
            Ok(_) => return self.findings.ok(NAME, format!("{at} is free")),
            Err(error) => error,
        };
        let health = self.probe.get(&format!("http://{}/healthz", local(at)), None).await;
        // Many servers have such a path; ours is told by its answer.
        if health.is_ok_and(|answer| {
            answer.status == 200 && json(&answer) == serde_json::json!({ "status": "ok" })
        }) {
            return self.findings.ok(NAME, format!("talaria already listens on {at}"));
        }
        let finding = format!("cannot listen on {at}: {error}");
        let fix = "stop the process that listens there, or choose another address with `admin.listen`";
        match chosen {
            true => self.findings.fail(NAME, finding, fix),
            false => self.findings.warn(
                NAME,
                format!("{finding}; there will be no /healthz, /readyz and /metrics"),
                fix,
            ),
        }
    }

    /// Checks who may approve what the agent asks for. Only in a workspace it is anybody who names the task.
    fn callers(&mut self) {
        let a2a = &self.config.a2a;
        let has_names = !a2a.tokens.is_empty() || a2a.platform_calls;
        if self.config.workspace.is_none() || has_names || a2a.listen.ip().is_loopback() {
            return;
        }
        self.findings.warn(
            "approvals",
            format!("a caller without a token that reaches {} may approve what the agent asks for in a task that it names", a2a.listen),
            "set `a2a.auth.open = false` where the platform sends its secret, or `a2a.auth.tokens`",
        );
    }

    /// Checks the port of the tools. If it is taken and was not configured, the agent has no tools.
    async fn tools_port(&mut self) {
        const NAME: &str = "tools' port";
        let Some((at, chosen)) = self.config.tools.as_ref().map(|tools| (tools.listen, tools.chosen)) else {
            return;
        };
        let error = match TcpListener::bind(at).await {
            Ok(_) => return self.findings.ok(NAME, format!("{at} is free")),
            Err(error) => error,
        };
        let answer = self.probe.get(&format!("http://{at}{}", talaria_mcp::PATH), None).await;
        // Without a token Talaria answers 401.
        if answer.is_ok_and(|answer| answer.status == 401) {
            return self.findings.ok(NAME, format!("talaria already listens on {at}"));
        }
        let finding = format!("cannot listen on {at}: {error}");
        let fix = "stop the process that listens there, or choose another address with `tools.listen`";
        match chosen {
            true => self.findings.fail(NAME, finding, fix),
            false => self.findings.warn(NAME, format!("{finding}; the agent will have no tools"), fix),
        }
    }

    fn store(&mut self) {
        const NAME: &str = "store";
        let StoreUrl::Sqlite(path) = &self.config.store else {
            return self.findings.warn(
                NAME,
                "tasks are stored in memory and lost when the process ends",
                "set `store.url` to a file",
            );
        };
        match talaria_store::try_write(path, &self.config.sqlite()) {
            Ok(()) => self.findings.ok(NAME, format!("{} can be written", path.display())),
            Err(full @ OpenError::Full { .. }) => {
                let fix = "until there is room, new messages are rejected with 429";
                self.findings.fail(NAME, full.to_string(), fix);
            }
            Err(error) => {
                let fix = "make the file and its folder writable for the user that runs talaria, or set `store.url` to another path";
                self.findings.fail(NAME, format!("{} cannot be written: {error}", path.display()), fix);
            }
        }
        match Owner::of(path) {
            Some(owner) => self.findings.ok("store owner", format!("{owner}")),
            None => self.findings.ok("store owner", "no running host"),
        }
    }

    /// Checks that, in a container, what must outlive it is on a volume.
    fn volumes(&mut self) {
        const NAME: &str = "volume";
        let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
            // Not Linux, or no /proc: there is nothing to tell it by.
            return;
        };
        if !is_layered(&mounts) {
            return self.findings.ok(NAME, "not in a container with an ephemeral file system");
        }
        let mut kept: Vec<(&str, PathBuf)> = Vec::new();
        if let StoreUrl::Sqlite(path) = &self.config.store {
            kept.push(("the store", path.clone()));
        }
        if let Some(workspace) = &self.config.workspace {
            kept.push(("the workspace's folder", workspace.assembly.places().folder.clone()));
        }
        if let Some(home) = self.gateway_home.clone() {
            kept.push(("the gateway's home, with sessions and skills,", home));
        }
        for (what, path) in kept {
            let Ok(absolute) = std::path::absolute(&path) else { continue };
            match volume(&mounts, what, &absolute) {
                Ok(finding) => self.findings.ok(NAME, finding),
                Err((finding, fix)) => self.findings.warn(NAME, finding, fix),
            }
        }
    }

    async fn platform(&mut self) {
        const NAME: &str = "platform";
        let Some(workspace) = &self.config.workspace else { return };
        let (url, folder) = (workspace.platform_url.clone(), workspace.assembly.places().folder.clone());
        match self.probe.get(&format!("{}/health", url.as_str().trim_end_matches('/')), None).await {
            Ok(answer) => {
                self.findings.ok(NAME, format!("{url} answers ({})", answer.status));
                self.findings.clock(&answer, url.as_str());
            }
            Err(error) => self.findings.fail(
                NAME,
                format!("{url} does not answer: {error}"),
                "correct PLATFORM_URL, or start the platform",
            ),
        }
        match writable(&folder) {
            Ok(()) => self.findings.ok("workspace folder", format!("{} can be written", folder.display())),
            Err(error) => {
                let finding = format!("{} cannot be written: {error}", folder.display());
                self.findings.fail(
                    "workspace folder",
                    finding,
                    "tokens and snapshots are stored there: mount it writable, or set WORKSPACE_CONFIG_PATH to another folder",
                );
            }
        }
    }
}

/// The address at which a listener on `at` can be called from this machine.
pub(super) fn local(at: SocketAddr) -> SocketAddr {
    match at.ip().is_unspecified() {
        true => SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), at.port()),
        false => at,
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Creates a file in a folder and deletes it again, to find out whether that is possible.
fn writable(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".talaria-doctor-{}", uuid::Uuid::new_v4().simple()));
    fs::File::options().write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)
}

/// Whether the root of the file system consists of the layers of a container.
fn is_layered(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let (left, right) = line.split_once(" - ").unwrap_or((line, ""));
        left.split(' ').nth(4) == Some("/") && right.starts_with("overlay")
    })
}

/// Returns which volume a path of a container is on, or else the finding and its fix.
fn volume(mounts: &str, what: &str, path: &Path) -> Result<String, (String, String)> {
    let lost = match mount_of(mounts, path) {
        Some((_, "tmpfs" | "ramfs")) => "is in memory",
        Some(("/", _)) | None => "is lost with the container",
        Some((mount, _)) => return Ok(format!("{what} is on the volume {mount}")),
    };
    let finding = format!("{what} is at {}, which {lost}", path.display());
    Err((finding, format!("mount a volume at {}", parent(path).display())))
}

/// The mount point that a path is under, and the type of the file system there.
fn mount_of<'m>(mounts: &'m str, path: &Path) -> Option<(&'m str, &'m str)> {
    let of_line = |line: &'m str| {
        let (left, right) = line.split_once(" - ").unwrap_or((line, ""));
        Some((left.split(' ').nth(4)?, right.split(' ').next().unwrap_or_default()))
    };
    let points = mounts.lines().filter_map(of_line).filter(|(point, _)| path.starts_with(point));
    // If two mounts share a mount point, the later one counts.
    points.max_by_key(|(point, _)| point.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:30 / / rw,relatime - overlay overlay rw,lowerdir=/a
30 22 0:31 / /proc rw - proc proc rw
40 22 8:1 /vol /configs rw,relatime - ext4 /dev/sda1 rw
41 40 0:32 / /configs/scratch rw,relatime - tmpfs tmpfs rw";

    #[test]
    fn finds_the_nearest_mount_of_a_path() {
        assert!(is_layered(MOUNTS));
        assert!(!is_layered("22 1 8:1 / / rw - ext4 /dev/sda1 rw"));
        assert_eq!(mount_of(MOUNTS, Path::new("/configs/a/b")), Some(("/configs", "ext4")));
        assert_eq!(mount_of(MOUNTS, Path::new("/configs2/a")), Some(("/", "overlay")));
    }

    #[test]
    fn warns_about_a_path_that_is_lost_with_the_container() {
        let of = |path: &str| volume(MOUNTS, "the store", Path::new(path));
        assert_eq!(of("/configs/talaria.db").unwrap(), "the store is on the volume /configs");
        assert_eq!(
            of("/home/agent/talaria.db").unwrap_err(),
            (
                "the store is at /home/agent/talaria.db, which is lost with the container".into(),
                "mount a volume at /home/agent".into()
            )
        );
        assert!(of("/configs/scratch/talaria.db").unwrap_err().0.ends_with("which is in memory"));
        assert!(volume("", "the store", Path::new("/x/y")).is_err());
    }
}
