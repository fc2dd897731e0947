//! How much memory the process may use: the limit of its control group, or the machine's memory.
//!
//! Every group on the path from the process's group up to the root may have a limit, and the smallest one counts. Both
//! versions of control groups are read, since a container may be in either. What cannot be read or parsed is no limit: a
//! start must not fail because a file of the kernel is missing. In a container the root that is mounted is often the
//! container's own group, while the path is that of the host and does not exist here; so missing groups are skipped, and
//! the mounted root counts too.

use std::path::{Path, PathBuf};

/// Where the kernel says how much memory there is.
#[derive(Debug, Clone)]
pub struct Machine {
    cgroups: PathBuf,
    proc: PathBuf,
}

/// What is assumed if neither a limit nor the machine's memory can be read.
const UNKNOWN: u64 = 1 << 30;

// === impl Machine ===

impl Default for Machine {
    fn default() -> Self {
        Self::at("/sys/fs/cgroup", "/proc")
    }
}

impl Machine {
    /// A machine whose control groups and processes are in these folders.
    #[must_use]
    pub fn at(cgroups: impl Into<PathBuf>, proc: impl Into<PathBuf>) -> Self {
        Self { cgroups: cgroups.into(), proc: proc.into() }
    }

    /// The memory that this process may use, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let limits = [self.group_limit(), self.ram()];
        limits.into_iter().flatten().min().unwrap_or(UNKNOWN)
    }

    /// The smallest limit of the control groups that this process is in.
    fn group_limit(&self) -> Option<u64> {
        let groups = std::fs::read_to_string(self.proc.join("self/cgroup")).unwrap_or_default();
        let limits = groups.lines().filter_map(|line| {
            // `0::/path` is version 2, `7:cpu,memory:/path` version 1.
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            match controllers {
                "" => smallest(&self.cgroups, path, "memory.max"),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    smallest(&self.cgroups.join("memory"), path, "memory.limit_in_bytes")
                }
                _ => None,
            }
        });
        limits.min()
    }

    fn ram(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }
}

/// Returns the smallest limit of the groups from `path` up to `root`.
fn smallest(root: &Path, path: &str, file: &str) -> Option<u64> {
    let group = Path::new(path.trim_start_matches('/'));
    // A process outside of the namespace's root has a path like `/../other`, which leads out of the mounted tree.
    let group = if group.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        group
    } else {
        Path::new("")
    };
    let limits = group.ancestors().filter_map(|group| {
        let text = std::fs::read_to_string(root.join(group).join(file)).ok()?;
        // Version 2 writes `max` and version 1 a huge number for no limit; the latter is above the machine's memory.
        text.trim().parse::<u64>().ok().filter(|limit| *limit > 0)
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes these files, with `MemTotal` of 8 GiB, and returns the memory that is found.
    fn memory(cgroup: &str, files: &[(&str, &str)]) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(folder.path().join("proc/self/cgroup"), cgroup);
        put(folder.path().join("proc/meminfo"), "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
        for (path, text) in files {
            put(folder.path().join("cgroup").join(path), text);
        }
        Machine::at(folder.path().join("cgroup"), folder.path().join("proc")).memory()
    }

    const RAM: u64 = 8 << 30;

    #[test]
    fn the_smallest_limit_on_the_path_up_counts() {
        let nested = "0::/pods/pod1/box\n";
        let files = [("pods/memory.max", "300\n"), ("pods/pod1/memory.max", "100\n")];
        assert_eq!(memory(nested, &files), 100);
        assert_eq!(memory(nested, &[("pods/pod1/box/memory.max", "max\n"), ("memory.max", "200\n")]), 200);
        assert_eq!(memory(nested, &[("pods/pod1/box/memory.max", "50"), ("pods/memory.max", "max")]), 50);
        assert_eq!(memory("0::/\n", &[("memory.max", "536870912\n")]), 512 << 20, "a container's own root");
    }

    #[test]
    fn version_one_of_control_groups_is_read_too() {
        let cgroup = "12:pids:/docker/abc\n7:cpu,memory:/docker/abc\n0::/docker/abc\n";
        let own = [("memory/docker/abc/memory.limit_in_bytes", "1000\n")];
        assert_eq!(memory(cgroup, &own), 1000);
        let mounted = [("memory/memory.limit_in_bytes", "2000\n")];
        assert_eq!(memory(cgroup, &mounted), 2000, "the path is that of the host");
        let both = [("memory/docker/memory.limit_in_bytes", "9000"), ("docker/abc/memory.max", "4000")];
        assert_eq!(memory(cgroup, &both), 4000, "a hybrid machine");
    }

    #[test]
    fn without_a_limit_the_machines_memory_counts() {
        assert_eq!(memory("0::/a\n", &[("a/memory.max", "max\n")]), RAM);
        assert_eq!(
            memory("7:memory:/a\n", &[("memory/a/memory.limit_in_bytes", "9223372036854771712")]),
            RAM
        );
        assert_eq!(memory("0::/a\n", &[("a/memory.max", "99999999999999")]), RAM, "more than there is");
    }

    #[test]
    fn nonsense_is_no_limit() {
        for text in ["", "lots", "-5", "0", "18446744073709551616", "1.5G", "\u{0}"] {
            assert_eq!(memory("0::/a\n", &[("a/memory.max", text)]), RAM, "{text:?}");
        }
        for cgroup in ["", "nonsense", "0:/a", "::", "0::/../../a\n", "0::/./a"] {
            assert_eq!(memory(cgroup, &[]), RAM, "{cgroup:?}");
        }
        assert_eq!(Machine::at("/does/not", "/exist").memory(), UNKNOWN);
    }
}
