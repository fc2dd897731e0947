//! What only root can do for a gateway that runs as another user: make its home, give the home to it, and open a log in a
//! folder of root's.
//!
//! A path is opened one folder at a time, relative to the last one and without following links, and what is done is done to
//! the open folder. A name that the user can change at any time decides nothing, and so [`give`] changes the owner of a
//! folder only if root put it there, if it is a mount point, or if there is nothing in it. Anything else may be a folder of
//! somebody else that the user has renamed; it is left alone, with an error that says so.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, fchown, fstat, mkdirat, open, openat, statat};
use rustix::process::{Gid, Uid};

/// How a folder is opened.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The permissions by which anybody but the owner can change a folder.
const WRITABLE: u32 = 0o022;

/// The bit of a folder, such as `/tmp`, in which everybody can rename only their own entries.
const STICKY: u32 = 0o1000;

/// A folder that was opened without following a link.
struct Folder {
    dir: OwnedFd,
    stat: Stat,
    /// Nobody but root can have put it, or a folder above it, where it is.
    is_roots_place: bool,
    is_mount_point: bool,
    is_new: bool,
}

/// Makes a user the owner of a folder, which is created if only root can create it.
///
/// # Errors
/// If there is a link on the way, or if the folder may be somebody else's.
pub(super) fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let folder = Folder::open(path, true)?;
    let is_given = folder.is_new || folder.is_roots_place || folder.is_mount_point || is_empty(&folder.dir)?;
    if !is_given {
        let owner = folder.stat.st_uid;
        let what = format!(
            "it belongs to the user with the id {owner} and is not empty; if it is meant for the gateway, change its owner yourself"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    fchown(&folder.dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(())
}

/// Opens a file in a folder that only root can change.
///
/// # Errors
/// If anybody else can change the folder or a folder above it, or if there is a link or no regular file at the path.
pub(super) fn open_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not the path of a file"));
    };
    let folder = Folder::open(parent, false)?;
    if !folder.is_roots_place || !is_roots_alone(&folder.stat) {
        let what = "neither may `gateway.user` write there, nor does the folder belong to root alone";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&folder.dir, name, flags, Mode::from_raw_mode(0o600))?);
    talaria_config::files::must_be_regular(&file)?;
    Ok(file)
}

// === impl Folder ===

impl Folder {
    /// Opens a folder. With `create`, missing ones are created as long as only root can have put them there.
    fn open(path: &Path, create: bool) -> io::Result<Self> {
        let dir = open("/", FOLDER, Mode::empty())?;
        let stat = fstat(&dir)?;
        let mut folder = Self { dir, stat, is_roots_place: true, is_mount_point: true, is_new: false };
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => folder = folder.enter(name, create)?,
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "write its path without `..`"));
                }
            }
        }
        Ok(folder)
    }

    fn enter(&self, name: &OsStr, create: bool) -> io::Result<Self> {
        let mut is_new = false;
        let dir = match openat(&self.dir, name, FOLDER, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) if create && self.is_roots_place && is_roots_alone(&self.stat) => {
                mkdirat(&self.dir, name, Mode::from_raw_mode(0o755))?;
                is_new = true;
                openat(&self.dir, name, FOLDER, Mode::empty())?
            }
            Err(error) => {
                let found = statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW);
                let is_link =
                    found.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink());
                return Err(match is_link {
                    true => io::Error::other(format!(
                        "{name:?} is a link, which root does not follow there; name the folder itself"
                    )),
                    false => error.into(),
                });
            }
            Ok(dir) => dir,
        };
        let stat = fstat(&dir)?;
        let is_settled = is_roots_alone(&self.stat)
            || (self.stat.st_uid == 0 && self.stat.st_mode & STICKY != 0 && stat.st_uid == 0);
        Ok(Self {
            is_roots_place: self.is_roots_place && is_settled,
            is_mount_point: stat.st_dev != self.stat.st_dev,
            is_new,
            dir,
            stat,
        })
    }
}

/// Whether only root can change the entries of a folder.
fn is_roots_alone(stat: &Stat) -> bool {
    stat.st_uid == 0 && stat.st_mode & WRITABLE == 0
}

fn is_empty(dir: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(dir)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
