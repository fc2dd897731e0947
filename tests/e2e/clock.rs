//! Time that runs faster for a bridge than for its test.
//!
//! libfaketime stands between the bridge and the C library: what the clocks say (also those that never go back) and how
//! long sleeps and waits for sockets take. So every pause and every time limit of the bridge is as it is in production,
//! counted by a clock that is [`FACTOR`] times as fast. What waits in the kernel by a clock of the kernel's own, such as a
//! condition of a mutex, is as slow as ever; nothing that the bridge does in time depends on one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::bridge::{Bridge, Start};

/// How much faster. An hour is two minutes, and the ten seconds that the platform has to answer are a third of a second,
/// which a busy machine still manages.
pub(crate) const FACTOR: u32 = 30;

/// A clock that runs on while bridges come and go.
pub(crate) struct Clock {
    library: PathBuf,
    began: Instant,
}

// === impl Clock ===

impl Clock {
    /// Begins now.
    pub(crate) fn start() -> Self {
        Self { library: library(), began: Instant::now() }
    }

    /// A bridge by this clock.
    pub(crate) fn drive<'a>(&self, start: Start<'a>) -> Start<'a> {
        // It begins with the clock of the machine, so it gets what the clock is ahead by. Never less than that: time does not
        // go back between two bridges.
        let ahead = self.began.elapsed() * (FACTOR - 1);
        start
            .env("LD_PRELOAD", &self.library.to_string_lossy())
            .env("FAKETIME", &format!("+{} x{FACTOR}", ahead.as_secs() + 1))
            // The times of files are the machine's.
            .env("NO_FAKE_STAT", "1")
    }

    /// Kills a bridge, and removes what the library shares between a process and its children, which would stay behind.
    pub(crate) fn kill(bridge: Bridge) {
        let id = bridge.id();
        bridge.kill();
        for name in [format!("faketime_shm_{id}"), format!("sem.faketime_sem_{id}")] {
            let _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
        }
    }

    /// What this clock says, since it began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed() * FACTOR
    }

    /// Lets time pass.
    pub(crate) async fn pass(simulated: Duration) {
        tokio::time::sleep(simulated / FACTOR).await;
    }
}

/// Where `cargo xtask prepare` leaves it, below a folder that has the name of the machine's architecture.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap_or(Path::new("target"));
    let folders = std::fs::read_dir(target.join("libfaketime/usr/lib")).into_iter().flatten().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|path| path.is_file()).expect("libfaketime; `cargo xtask clock` fetches it")
}
