//! The gateway's process: started as a user, in a process group of its own, stopped in order.
//!
//! Signals go to the group, so that what the gateway started ends with it. A pid file holds the process id and the time at
//! which that process began, so that a process which a killed host left behind is found, and nobody else's is ever ended.
//!
//! As another user the process has that user's ids, no further groups, and that user's home. Only root can do that, and root
//! must not be misled by what that user puts into the gateway's home: no link there is followed, and a process that does not
//! belong to that user is not ended, whatever the pid file says.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process_group, test_kill_process};
use talaria_config::files;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::home::HomeOwner;

/// The interval at which a leftover process is looked at. It is not a child of this process, so nothing reports its end.
const LEFTOVER_CHECK: Duration = Duration::from_millis(100);

/// How long the process may take to end after SIGTERM. Below what is left of the 30 s that container platforms wait.
const GRACE: Duration = Duration::from_secs(8);

/// The number of bytes at the end of the log that are read.
const TAIL_BYTES: u64 = 256 << 10;

/// A log that is longer than this is started anew; the old one is kept with the suffix `.1`.
const LOG_BYTES: u64 = 16 << 20;

/// How the gateway is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its home, `HERMES_HOME`.
    pub home: PathBuf,
    /// The file that its output goes to.
    pub log: PathBuf,
    /// The user that it runs as; that of this process if absent.
    pub user: Option<User>,
}

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// A running gateway.
pub(super) struct Process {
    child: Child,
    /// Also the id of its group.
    id: u32,
    pid_file: PathBuf,
}

// === impl User ===

impl User {
    /// Looks the user up in `/etc/passwd`.
    ///
    /// # Errors
    /// If there is no such user, in words.
    pub fn named(name: &str) -> Result<Self, String> {
        let text = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let found = text.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [known, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
            (*known == name).then_some(())?;
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            Some(Self { name: name.to_owned(), uid, gid, home: PathBuf::from(home) })
        });
        found.ok_or_else(|| format!("there is no user {name:?} on this machine"))
    }

    /// The user's home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

// === impl Launch ===

impl Launch {
    /// Starts the gateway. It must be called within a runtime.
    pub(super) fn start(&self) -> io::Result<Process> {
        let mut command = self.command(&self.command)?;
        if let Some(user) = self.other_user().filter(|_| !getuid().is_root()) {
            let what = format!(
                "it is to run as `gateway.user` {:?}, which needs root; run talaria as root, or leave `gateway.user` out",
                user.name
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if self.log.metadata().is_ok_and(|metadata| metadata.len() > LOG_BYTES) {
            let mut old = self.log.as_os_str().to_owned();
            old.push(".1");
            fs::rename(&self.log, old)?;
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        if self.home_owner() == HomeOwner::OtherUser {
            files::must_be(&log, &self.log)?;
        }
        // Without this file the gateway resumes old turns by itself; Talaria knows better what became of them.
        files::write_private(&self.home.join(".clean_shutdown"), "")?;
        self.chown_home()?;
        command.stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        let pid_file = self.pid_file();
        if let Some(began) = began(id) {
            let _ = files::write_private(&pid_file, &format!("{id} {began}\n"));
        }
        Ok(Process { child, id, pid_file })
    }

    /// A command that runs as the gateway's user, in its home.
    pub(super) fn command(&self, words: &[String]) -> io::Result<Command> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.home).env("HERMES_HOME", &self.home).stdin(Stdio::null());
        // The agent's tools must not see the token of this workspace.
        command.env_remove("MOLECULE_WORKSPACE_TOKEN");
        if let Some(user) = self.other_user() {
            // This drops root's further groups too.
            command.uid(user.uid).gid(user.gid);
            command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        Ok(command)
    }

    /// The user that it runs as, if that is not the user of this process.
    fn other_user(&self) -> Option<&User> {
        self.user.as_ref().filter(|user| user.uid != getuid().as_raw())
    }

    /// The owner of its home.
    pub(super) fn home_owner(&self) -> HomeOwner {
        if self.other_user().is_some() { HomeOwner::OtherUser } else { HomeOwner::ThisUser }
    }

    /// Makes the gateway's user the owner of the home and of the files that were written there.
    pub(super) fn chown_home(&self) -> io::Result<()> {
        let Some(user) = self.other_user() else { return Ok(()) };
        let names = [
            "",
            ".env",
            "config.yaml",
            "config.yaml.before-talaria",
            ".clean_shutdown",
            "SOUL.md",
            "SOUL.md.before-talaria",
        ];
        for path in names.iter().map(|name| self.home.join(name)).filter(|path| path.exists()) {
            lchown(&path, Some(user.uid), Some(user.gid))?;
        }
        Ok(())
    }

    /// Ends a gateway that a killed host left behind, and waits for it. Returns its process id.
    pub(super) async fn end_leftover(&self) -> Option<u32> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let (id, then) = text.trim().split_once(' ')?;
        let id: u32 = id.parse().ok()?;
        let is = fs::metadata(Path::new("/proc").join(id.to_string())).ok()?;
        if self.other_user().is_some_and(|user| user.uid != is.uid()) || began(id).as_deref() != Some(then) {
            return None;
        }
        let pid = Pid::from_raw(i32::try_from(id).ok()?)?;
        let _ = kill_process_group(pid, Signal::TERM);
        let until = Instant::now() + GRACE;
        while began(id).as_deref() == Some(then) && Instant::now() < until {
            sleep(LEFTOVER_CHECK).await;
        }
        let _ = kill_process_group(pid, Signal::KILL);
        Some(id)
    }

    fn pid_file(&self) -> PathBuf {
        self.home.join(".talaria-gateway")
    }
}

// === impl Process ===

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Waits until the process ends. Dropping the future loses nothing.
    pub(super) async fn wait(&mut self) -> ExitStatus {
        // Waiting for a child that was started fails only if somebody else has reaped it, so it is gone.
        self.child.wait().await.unwrap_or_default()
    }

    /// Sends SIGTERM, then SIGKILL after a grace period; returns when the process is gone.
    pub(super) async fn stop(mut self) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(GRACE, self.wait()).await.is_err() {
            self.signal(Signal::KILL);
            self.wait().await;
        }
        // Its own children may still be there.
        self.signal(Signal::KILL);
        let _ = fs::remove_file(&self.pid_file);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.id).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Process {
    /// Leaves nothing behind if the runtime is torn down.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
        }
    }
}

/// The last lines of a log; empty if it cannot be read.
pub(super) fn tail(log: &Path, lines: usize) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let skipped = text.lines().count().saturating_sub(lines);
    text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}

/// When a process began, in the kernel's ticks; `None` if there is no such process, or only a zombie.
fn began(id: u32) -> Option<String> {
    let pid = Pid::from_raw(i32::try_from(id).ok()?)?;
    test_kill_process(pid).ok()?;
    let text = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).ok()?;
    // The name is in brackets and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let state = fields.first()?;
    (*state != "Z").then(|| fields.get(19).map(|ticks| (*ticks).to_owned()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_the_time_it_began() {
        let own = began(std::process::id()).unwrap();
        assert!(own.parse::<u64>().is_ok(), "{own}");
        assert_eq!(began(u32::MAX), None);
        let user = User::named("root").unwrap();
        assert_eq!((user.uid, user.gid), (0, 0));
        assert!(User::named("nobody-of-this-name").is_err());
    }
}
