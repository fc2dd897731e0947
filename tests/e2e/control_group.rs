//! A control group of the kernel's, as a container has one: what takes more memory than its limit is killed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group of its own for the processes of a test. Removed when dropped, after its processes have ended.
pub(crate) struct ControlGroup {
    folder: PathBuf,
    version: Version,
}

/// The versions of control groups, which name their files differently.
#[derive(Clone, Copy)]
struct Version {
    limit: &'static str,
    /// Has a line `oom_kill N`.
    events: &'static str,
}

const V1: Version = Version { limit: "memory.limit_in_bytes", events: "memory.oom_control" };
const V2: Version = Version { limit: "memory.max", events: "memory.events" };

// === impl ControlGroup ===

impl ControlGroup {
    /// Makes a group with this limit. `None` if this process may not: it takes root, or a delegated group.
    pub(crate) fn with_memory(bytes: usize) -> Option<Self> {
        let places = places(&fs::read_to_string("/proc/self/cgroup").ok()?);
        places.into_iter().find_map(|(parent, version)| {
            let folder = parent.join(format!("talaria-test-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let group = Self { folder, version };
            // The file is there only if the group controls memory.
            group.folder.join(version.limit).exists().then_some(())?;
            fs::write(group.folder.join(version.limit), bytes.to_string()).ok()?;
            let set = fs::read_to_string(group.folder.join(version.limit)).ok()?;
            (set.trim() == bytes.to_string()).then_some(group)
        })
    }

    /// The words that, in front of a command, have it begin in this group.
    pub(crate) fn prefix(&self) -> [OsString; 4] {
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        ["sh".into(), "-c".into(), enter.into(), self.folder.join("cgroup.procs").into()]
    }

    /// Whether a process is in it.
    pub(crate) fn has(&self, process: u32) -> bool {
        let processes = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap();
        processes.lines().any(|line| line == process.to_string())
    }

    /// How many processes were killed because the group had reached its limit.
    pub(crate) fn kills(&self) -> usize {
        let events = fs::read_to_string(self.folder.join(self.version.events)).unwrap();
        let line = events.lines().find_map(|line| line.strip_prefix("oom_kill ")).expect("a count");
        line.trim().parse().unwrap()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Processes leave their group a moment after they have ended.
        for _ in 0..500 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("{} is left behind", self.folder.display());
    }
}

/// The groups in which a new one may be made: with version 1 that of this process; with version 2 the one above, because
/// a group that has processes there hands no memory on.
fn places(groups: &str) -> Vec<(PathBuf, Version)> {
    let place = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some((Path::new("/sys/fs/cgroup").join(path).parent()?.to_owned(), V2)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((Path::new("/sys/fs/cgroup/memory").join(path), V1))
            }
            _ => None,
        }
    };
    groups.lines().filter_map(place).collect()
}
