//! The gateway's process: started as a user, in a process group of its own, stopped in order.
//!
//! Signals go to the group, so that what the gateway started ends with it. A pid file holds the process id and the time at
//! which that process began, so that a process which a killed host left behind is found, and nobody else's is ever ended.
//!
//! As another user the process has that user's ids, no further groups, and that user's home. Only root can do that. The files
//! in the home are that user's, so a process that does not belong to that user is not ended, whatever the pid file says.
//!
//! The process gets the variables of the [`Passed`] list and no others.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process_group, test_kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::environment::Passed;
use super::files::Home;
use super::user::User;

/// The interval at which a leftover process is looked at. It is not a child of this process, so nothing reports its end.
const LEFTOVER_CHECK: Duration = Duration::from_millis(100);

/// How long the process may take to end after SIGTERM. Below what is left of the 30 s that container platforms wait.
const GRACE: Duration = Duration::from_secs(8);

/// The file that identifies a running gateway.
const PID_FILE: &str = ".talaria-gateway";

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
    /// The variables of this process's environment that it gets.
    pub env: Passed,
}

/// A running gateway.
pub(super) struct Process {
    child: Child,
    /// Also the id of its group.
    id: u32,
    home: Home,
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
        let home = self.files();
        let log = home.open_log(&self.log)?;
        command.stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        if let Some(began) = began(id) {
            let _ = home.write(PID_FILE, &format!("{id} {began}\n"));
        }
        Ok(Process { child, id, home })
    }

    /// Its home, in which everything is done in the name of its user.
    pub fn files(&self) -> Home {
        Home::new(&self.home, self.user.as_ref())
    }

    /// A command that runs as the gateway's user, in its home.
    pub(super) fn command(&self, words: &[String]) -> io::Result<Command> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.home).stdin(Stdio::null());
        command.env_clear().envs(self.env.variables()).env("HERMES_HOME", &self.home);
        if let Some(user) = self.other_user() {
            // This drops root's further groups too.
            command.uid(user.uid).gid(user.gid);
            command.env("HOME", user.home()).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        Ok(command)
    }

    /// The user that it runs as, if that is not the user of this process.
    fn other_user(&self) -> Option<&User> {
        self.user.as_ref().filter(|user| user.uid != getuid().as_raw())
    }

    /// Ends a gateway that a killed host left behind, and waits for it. Returns its process id.
    pub(super) async fn end_leftover(&self) -> Option<u32> {
        let text = self.files().text(PID_FILE).ok()??;
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
        let _ = self.home.remove(PID_FILE);
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
