//! The gateway's process: started as a user, in a group of its own, watched by looking, stopped in order.
//!
//! Its group gets the signals, so that what it started ends with it. What a killed bridge left behind is found by a file
//! that has the process id and when that process began, so that nobody else's process is ever ended. Looking every
//! [`LOOK`] instead of waiting keeps this on the runtime that everything else is on.
//!
//! As another user it has that user's ids and no further groups, and its home is that user's. Only root can do that, and
//! root must not be led by what that user lays into the home: no link there is followed, and a process that is not that
//! user's is not ended, whatever the file says.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process_group, test_kill_process};
use tokio::time::{Instant, sleep};

use super::home::Whose;
use crate::folder;

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long it has to end after SIGTERM. Below what is left of the 30 s that container platforms wait.
const GRACE: Duration = Duration::from_secs(8);

/// How much of its log is read for its last words.
const TAIL_BYTES: u64 = 256 << 10;

/// A log that is longer than this is begun anew; the old one is kept beside.
const LOG_BYTES: u64 = 16 << 20;

/// How it is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its home, `HERMES_HOME`.
    pub home: PathBuf,
    /// Where its output goes.
    pub log: PathBuf,
    /// Who it runs as; as this process where nobody is named.
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

/// The process.
pub(super) struct Process {
    child: Child,
    note: PathBuf,
}

// === impl User ===

impl User {
    /// The user of this name, as `/etc/passwd` has it.
    ///
    /// # Errors
    /// When there is none.
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

    /// The user's home.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

// === impl Launch ===

impl Launch {
    /// Starts it.
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
        if self.whose_home() == Whose::Theirs {
            folder::must_be(&log, &self.log)?;
        }
        // After an unclean end it would take up old turns by itself; the bridge knows better what became of them.
        folder::write_private(&self.home.join(".clean_shutdown"), "")?;
        self.give_home()?;
        command.stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn()?;
        let note = self.note();
        if let Some(began) = began(child.id()) {
            let _ = folder::write_private(&note, &format!("{} {began}\n", child.id()));
        }
        Ok(Process { child, note })
    }

    /// A command as the gateway's user, in its home.
    pub(super) fn command(&self, words: &[String]) -> io::Result<Command> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.home).env("HERMES_HOME", &self.home).stdin(Stdio::null());
        // What this workspace proves itself to the platform with is no business of an agent's tools.
        command.env_remove("MOLECULE_WORKSPACE_TOKEN");
        if let Some(user) = self.other_user() {
            // Root's further groups go with that.
            command.uid(user.uid).gid(user.gid);
            command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        Ok(command)
    }

    /// The user that it runs as, where that is another than this process's.
    fn other_user(&self) -> Option<&User> {
        self.user.as_ref().filter(|user| user.uid != getuid().as_raw())
    }

    /// Whose its home is.
    pub(super) fn whose_home(&self) -> Whose {
        if self.other_user().is_some() { Whose::Theirs } else { Whose::Ours }
    }

    /// Gives the home and what was written there to the user.
    pub(super) fn give_home(&self) -> io::Result<()> {
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

    /// Ends what a bridge that was killed left behind, and waits for it.
    pub(super) async fn end_leftover(&self) -> Option<u32> {
        let text = fs::read_to_string(self.note()).ok()?;
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
            sleep(LOOK).await;
        }
        let _ = kill_process_group(pid, Signal::KILL);
        Some(id)
    }

    fn note(&self) -> PathBuf {
        self.home.join(".talaria-gateway")
    }
}

// === impl Process ===

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Resolves when it ends.
    pub(super) async fn end(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            sleep(LOOK).await;
        }
    }

    /// SIGTERM, a grace, SIGKILL; returns when it is gone.
    pub(super) async fn stop(mut self) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(GRACE, self.end()).await.is_err() {
            self.signal(Signal::KILL);
            self.end().await;
        }
        // What it started may have stayed.
        self.signal(Signal::KILL);
        let _ = fs::remove_file(&self.note);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Process {
    /// For a runtime that is torn down: nothing stays behind.
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// The last lines of a log; none where it cannot be read.
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

/// When a process began, in the kernel's ticks; none where there is no such process, or only its shell.
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
    fn a_process_is_known_by_when_it_began() {
        let own = began(std::process::id()).unwrap();
        assert!(own.parse::<u64>().is_ok(), "{own}");
        assert_eq!(began(u32::MAX), None);
        let user = User::named("root").unwrap();
        assert_eq!((user.uid, user.gid), (0, 0));
        assert!(User::named("nobody-of-this-name").is_err());
    }
}
