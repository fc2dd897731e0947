//! A clock that runs faster for a bridge than for its test.
//!
//! libfaketime sits between the bridge and the C library and scales all clocks, monotonic ones included, and the duration of
//! sleeps and of waits for sockets. So every pause and every timeout of the bridge has its production value, measured by a clock
//! that is [`FACTOR`] times as fast. Waits on a clock of the kernel, such as those of a condition variable, keep their real
//! duration; no timing of the bridge depends on them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::bridge::{Bridge, Start};

/// The speed of the clock. An hour takes two minutes, and the platform's ten seconds to answer take a third of a second, which
/// a busy machine still manages.
pub(crate) const FACTOR: u32 = 30;

/// A clock that keeps running across restarts of the bridge.
pub(crate) struct Clock {
    library: PathBuf,
    began: Instant,
}

// === impl Clock ===

impl Clock {
    /// Starts the clock.
    pub(crate) fn start() -> Self {
        Self { library: library(), began: Instant::now() }
    }

    /// Makes a bridge use this clock.
    pub(crate) fn drive<'a>(&self, start: Start<'a>) -> Start<'a> {
        // The bridge starts at the time of the machine, so it gets the lead of this clock, rounded up: time must not go back
        // between two bridges.
        let ahead = self.began.elapsed() * (FACTOR - 1);
        start
            .env("LD_PRELOAD", &self.library.to_string_lossy())
            .env("FAKETIME", &format!("+{} x{FACTOR}", ahead.as_secs() + 1))
            // The timestamps of files stay real.
            .env("NO_FAKE_STAT", "1")
    }

    /// Kills a bridge and removes the shared memory of the library, which would be left behind.
    pub(crate) fn kill(bridge: Bridge) {
        let id = bridge.id();
        bridge.kill();
        for name in [format!("faketime_shm_{id}"), format!("sem.faketime_sem_{id}")] {
            let _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
        }
    }

    /// The time on this clock since it started.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed() * FACTOR
    }

    /// Waits for a duration on this clock.
    pub(crate) async fn pass(simulated: Duration) {
        tokio::time::sleep(simulated / FACTOR).await;
    }
}

/// The library that `cargo xtask prepare` installs, below a folder named after the machine's architecture.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap_or(Path::new("target"));
    let folders = std::fs::read_dir(target.join("libfaketime/usr/lib")).into_iter().flatten().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|path| path.is_file()).expect("libfaketime; `cargo xtask clock` fetches it")
}
