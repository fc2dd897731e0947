//! Ports, folders, clock, and the platform.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use talaria_hermes::CALLBACK_PATH;
use tokio::net::TcpListener;

use super::{Examination, header, json};
use crate::config::StoreUrl;

/// The largest difference between two clocks that is not reported.
const SKEW: Duration = Duration::from_secs(60);

impl Examination<'_> {
    pub(super) async fn machine(&mut self) {
        self.port("A2A port", self.config.a2a.listen, "`a2a.listen` or --listen").await;
        if let Some(callback) = &self.config.callback {
            self.port("callback port", callback.listen, "`callback.listen` or MOLECULE_A2A_CALLBACK_PORT")
                .await;
        }
        self.operators_port().await;
        self.store();
        self.volumes();
        self.platform().await;
    }

    /// Whether a port can be listened on, or a bridge of ours is there already.
    async fn port(&mut self, name: &'static str, at: SocketAddr, key: &str) {
        let error = match TcpListener::bind(at).await {
            Ok(_) => return self.ok(name, format!("{at} is free")),
            Err(error) => error,
        };
        let here = local(at);
        let card = self.get(&format!("http://{here}/.well-known/agent-card.json"), None).await;
        let ours = card.is_ok_and(|card| {
            json(&card).get("name").and_then(serde_json::Value::as_str)
                == Some(self.config.a2a.card.current().name.as_str())
        });
        let path = self.config.callback.as_ref().map_or(CALLBACK_PATH, |callback| callback.path());
        let callback = self.get(&format!("http://{here}{path}"), None).await;
        // The callback listener answers 405 to a GET.
        if ours || (name == "callback port" && callback.is_ok_and(|answer| answer.status == 405)) {
            return self.ok(name, format!("a bridge serves at {at} already"));
        }
        self.fail(
            name,
            format!("cannot listen on {at}: {error}"),
            format!("end what listens there, or choose another with {key}"),
        );
    }

    /// The same for the operator's server, which is left out where nobody chose its port and it is taken.
    async fn operators_port(&mut self) {
        const NAME: &str = "operator's port";
        let (at, chosen) = (self.config.admin.listen, self.config.admin.chosen);
        let error = match TcpListener::bind(at).await {
            Ok(_) => return self.ok(NAME, format!("{at} is free")),
            Err(error) => error,
        };
        let health = self.get(&format!("http://{}/healthz", local(at)), None).await;
        if health.is_ok_and(|answer| answer.status == 200) {
            return self.ok(NAME, format!("a bridge serves at {at} already"));
        }
        let finding = format!("cannot listen on {at}: {error}");
        let fix = "end what listens there, or choose another with `admin.listen`";
        match chosen {
            true => self.fail(NAME, finding, fix),
            false => {
                self.warn(NAME, format!("{finding}; there will be no /healthz, /readyz and /metrics"), fix)
            }
        }
    }

    fn store(&mut self) {
        const NAME: &str = "store";
        let StoreUrl::Sqlite(path) = &self.config.store else {
            return self.warn(
                NAME,
                "tasks are kept in memory, and are gone when the process ends",
                "set `store.url` to a file",
            );
        };
        // The database writes files beside its own.
        let file = || match path.exists() {
            true => fs::File::options().append(true).open(path).map(drop),
            false => Ok(()),
        };
        match writable(parent(path)).and_then(|()| file()) {
            Ok(()) => self.ok(NAME, format!("{} can be written", path.display())),
            Err(error) => {
                let fix = "give the file and its folder to the user that runs talaria, or set `store.url` to another place";
                self.fail(NAME, format!("{} cannot be written: {error}", path.display()), fix);
            }
        }
    }

    /// In a container, what must outlive it must lie on a volume.
    fn volumes(&mut self) {
        const NAME: &str = "volume";
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if !is_layered(&mounts) {
            return self.ok(NAME, "this is no container whose files go with it");
        }
        let mut kept: Vec<(&str, PathBuf)> = Vec::new();
        if let StoreUrl::Sqlite(path) = &self.config.store {
            kept.push(("the store", path.clone()));
        }
        if let Some(workspace) = &self.config.workspace {
            kept.push(("the workspace's folder", workspace.assembly.places().folder.clone()));
        }
        if let Some(home) = self.home() {
            kept.push(("the gateway's home, with sessions and skills,", home));
        }
        for (what, path) in kept {
            let Ok(absolute) = std::path::absolute(&path) else { continue };
            match volume(&mounts, what, &absolute) {
                Ok(finding) => self.ok(NAME, finding),
                Err((finding, fix)) => self.warn(NAME, finding, fix),
            }
        }
    }

    async fn platform(&mut self) {
        const NAME: &str = "platform";
        let Some(workspace) = &self.config.workspace else { return };
        let (url, folder) = (workspace.platform_url.clone(), workspace.assembly.places().folder.clone());
        match self.get(&format!("{}/health", url.as_str().trim_end_matches('/')), None).await {
            Ok(answer) => {
                self.ok(NAME, format!("{url} answers ({})", answer.status));
                self.clock(header(&answer, "date"), url.as_str());
            }
            Err(error) => self.fail(
                NAME,
                format!("{url} does not answer: {error}"),
                "correct PLATFORM_URL, or start the platform",
            ),
        }
        match writable(&folder) {
            Ok(()) => self.ok("workspace folder", format!("{} can be written", folder.display())),
            Err(error) => {
                let finding = format!("{} cannot be written: {error}", folder.display());
                self.fail(
                    "workspace folder",
                    finding,
                    "tokens and snapshots are kept there: mount it writable, or set WORKSPACE_CONFIG_PATH",
                );
            }
        }
    }

    /// Whether this machine and another agree on the time.
    pub(super) fn clock(&mut self, date: Option<&str>, whose: &str) {
        let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) else { return };
        let now = SystemTime::now();
        let apart = now.duration_since(theirs).or_else(|_| theirs.duration_since(now)).unwrap_or_default();
        let finding = format!("this clock and that of {whose} are {} s apart", apart.as_secs());
        match apart > SKEW {
            true => self.warn("clock", finding, "set the clock of this machine by NTP"),
            false => self.ok("clock", finding),
        }
    }
}

/// An address that somebody listens on, as it is called from here.
fn local(at: SocketAddr) -> SocketAddr {
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

/// Whether a file can be made in a folder. It is gone again at once.
fn writable(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".talaria-doctor-{}", uuid::Uuid::new_v4().simple()));
    fs::File::options().write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)
}

/// Whether the root of the file system is a container's layers.
fn is_layered(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let (left, right) = line.split_once(" - ").unwrap_or((line, ""));
        left.split(' ').nth(4) == Some("/") && right.starts_with("overlay")
    })
}

/// What is to be said of something that is kept in a container: the volume that it is on, or a finding and its fix.
fn volume(mounts: &str, what: &str, path: &Path) -> Result<String, (String, String)> {
    let lost = match mount_of(mounts, path) {
        Some((_, "tmpfs" | "ramfs")) => "is in memory",
        Some(("/", _)) | None => "goes with the container",
        Some((mount, _)) => return Ok(format!("{what} is on the volume {mount}")),
    };
    let finding = format!("{what} is at {}, which {lost}", path.display());
    Err((finding, format!("mount a volume at {}", parent(path).display())))
}

/// The mount that a path is on, and its kind.
fn mount_of<'m>(mounts: &'m str, path: &Path) -> Option<(&'m str, &'m str)> {
    let of_line = |line: &'m str| {
        let (left, right) = line.split_once(" - ").unwrap_or((line, ""));
        Some((left.split(' ').nth(4)?, right.split(' ').next().unwrap_or_default()))
    };
    let points = mounts.lines().filter_map(of_line).filter(|(point, _)| path.starts_with(point));
    // Of two on one point the later one counts.
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
    fn a_path_is_on_the_nearest_mount() {
        assert!(is_layered(MOUNTS));
        assert!(!is_layered("22 1 8:1 / / rw - ext4 /dev/sda1 rw"));
        assert_eq!(mount_of(MOUNTS, Path::new("/configs/a/b")), Some(("/configs", "ext4")));
        assert_eq!(mount_of(MOUNTS, Path::new("/configs2/a")), Some(("/", "overlay")));
    }

    #[test]
    fn what_goes_with_the_container_is_told_with_where_to_mount_a_volume() {
        let of = |path: &str| volume(MOUNTS, "the store", Path::new(path));
        assert_eq!(of("/configs/talaria.db").unwrap(), "the store is on the volume /configs");
        assert_eq!(
            of("/home/agent/talaria.db").unwrap_err(),
            (
                "the store is at /home/agent/talaria.db, which goes with the container".into(),
                "mount a volume at /home/agent".into()
            )
        );
        assert!(of("/configs/scratch/talaria.db").unwrap_err().0.ends_with("which is in memory"));
        assert!(volume("", "the store", Path::new("/x/y")).is_err());
    }
}
