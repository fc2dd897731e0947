//! `MOLECULE_TOOL_ACTIVITY_FILE`: a file whose time of change says that the agent uses its tools, so that the platform's
//! watchers take a long turn for work and not for a hang.
//!
//! It is touched at most once a second, on a thread for blocking work, and created with mode 0600. A failure is a line in the
//! log, once. The file may be in a folder that the agent's user can write to, so a link in its place is not followed.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use talaria_turns::TurnObserver;
use tracing::warn;

/// The shortest time between two touches.
const EVERY: Duration = Duration::from_secs(1);

/// Touches the file when a tool is used.
#[derive(Debug)]
pub struct ToolActivity {
    path: Arc<Path>,
    last: Mutex<Option<Instant>>,
    has_failed: Arc<AtomicBool>,
}

// === impl ToolActivity ===

impl ToolActivity {
    /// Touches this file.
    pub fn new(path: PathBuf) -> Self {
        Self { path: path.into(), last: Mutex::new(None), has_failed: Arc::default() }
    }
}

impl TurnObserver for ToolActivity {
    fn tool_used(&self) {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            return;
        }
        *last = Some(now);
        drop(last);
        let (path, has_failed) = (Arc::clone(&self.path), Arc::clone(&self.has_failed));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = touch(&path)
                && !has_failed.swap(true, Ordering::Relaxed)
            {
                warn!(%error, file = %path.display(), "tool activity not written; check MOLECULE_TOOL_ACTIVITY_FILE");
            }
        });
    }
}

fn touch(path: &Path) -> io::Result<()> {
    let created = fs::File::options().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !fs::symlink_metadata(path)?.is_file() {
                return Err(io::Error::other("it is no regular file"));
            }
            fs::File::options().write(true).open(path)?.set_modified(SystemTime::now())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_touch_creates_a_private_file_renews_it_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("activity");
        touch(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        touch(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > long_ago);

        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(touch(&link).is_err());
        assert!(touch(&folder.path().join("missing/activity")).is_err());
    }
}
