//! The gateway's user, and work in that user's name.
//!
//! The gateway's home belongs to the gateway, which may put a link, a pipe or somebody else's file in the place of any of its
//! files, at any time. So root does nothing there itself. [`User::act`] runs the work on a thread that has the effective ids
//! of the user and none of root's groups: the kernel checks every path, and the worst that a trick can reach is what the user
//! could do without it. That includes every race, which checks of paths do not.
//!
//! Only the effective ids change. With the real ones, the user could send signals to the thread, which end the process.
//! Nothing has to be restored: the thread ends with the work.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    home: PathBuf,
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

/// The user in whose name this process works in a gateway's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acting {
    /// This process's own user.
    Itself,
    /// Another user. Only root can do that.
    As {
        /// The user's id.
        uid: u32,
        /// The id of the user's group.
        gid: u32,
    },
}

// === impl Acting ===

impl Acting {
    /// For a home whose gateway runs as this user, or as the user of this process.
    pub(crate) fn for_user(user: Option<&User>) -> Self {
        match user {
            Some(user) => Self::with_ids(user.uid, user.gid),
            None => Self::Itself,
        }
    }

    /// For the home of a gateway that this process does not start: as the owner of the path, which may be a link.
    pub(crate) fn for_owner_of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        fs::symlink_metadata(path).map_or(Self::Itself, |found| Self::with_ids(found.uid(), found.gid()))
    }

    fn with_ids(uid: u32, gid: u32) -> Self {
        // Without root there is nothing to give up.
        if getuid().is_root() && uid != 0 { Self::As { uid, gid } } else { Self::Itself }
    }

    /// Does this work in the name of the user, and returns its result.
    ///
    /// # Errors
    /// If the ids cannot be taken on; the work is not done then.
    pub(crate) fn act<T: Send>(self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let Self::As { uid, gid } = self else { return Ok(work()) };
        let become_user = move || -> io::Result<()> {
            set_thread_groups(&[])?;
            set_thread_res_gid(None, Gid::from_raw(gid), None)?;
            set_thread_res_uid(None, Uid::from_raw(uid), None)?;
            Ok(())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("gateway-home".into());
            let thread = thread.spawn_scoped(scope, move || become_user().map(|()| work()))?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the work in the gateway's home failed")))
        })
    }
}
