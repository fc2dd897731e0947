//! What each owner has in the file, and how much room the file has.
//!
//! The numbers are in memory. The only writer counts them as it writes, so they cost no statement, and they follow the
//! commits: what is rolled back is not counted. At the start they are read from the rows of the tasks, so they cannot drift.
//! A list takes its total from here: to count the rows would cost more with every task. Commits wait while a list begins, so
//! that the total and the rows are of the same moment.
//!
//! [`Room`] decides whether new messages are taken: not if the file would come too close to its largest size or the
//! disk to its end. What is left then, an eighth of the largest size, is for the turns under way. Pages of deleted tasks
//! count as free. It is measured at most once for each MiB that is written, and at every message while the store is full.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use talaria_turns::{Kept, Principal, State, StoreError};

use super::Config;
use super::fault::Fault;
use super::schema;
use super::write::natural;
use crate::counts::Counts;
use crate::{full, size_text};

/// The numbers, for everybody.
#[derive(Default)]
pub(super) struct Ledger {
    owners: Mutex<HashMap<Principal, Holding>>,
    /// Held while a transaction is committed and counted, and while a read begins that needs a number of the same moment.
    moment: Mutex<()>,
    size: AtomicU64,
}

/// The changes of one transaction, and the room. The writer's own.
pub(super) struct Books {
    changes: Vec<(Principal, Holding)>,
    pub(super) room: Room,
}

/// What an owner has, or how a write changes that.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holding {
    pub(super) states: Counts,
    pub(super) bytes: i64,
}

/// The room in the file and on its disk.
pub(super) struct Room {
    folder: PathBuf,
    max: Option<u64>,
    /// The least free space on the disk, if it was chosen.
    min_free: Option<u64>,
    /// The bytes written since it was measured.
    written: u64,
    measured: Option<Instant>,
    size: u64,
    full: Option<String>,
}

/// What may be written before the room is measured again; in small stores, this part of the largest size.
const UNMEASURED: u64 = 1 << 20;
const UNMEASURED_PART: u64 = 64;
/// How old a measurement may be: others write to the disk too.
const MEASURED: Duration = Duration::from_secs(1);
/// The least free space on a disk, unless it was chosen: room for the log (64 MiB) and for turns under way.
const MIN_FREE: u64 = 256 << 20;
/// On small disks, this part of the disk at most.
const MIN_FREE_PART: u64 = 20;

// === impl Ledger ===

impl Ledger {
    /// Reads what every owner has.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut select = connection
            .prepare("SELECT owner, state, count(*), sum(bytes) FROM tasks GROUP BY owner, state")?;
        let mut owners: HashMap<Principal, Holding> = HashMap::new();
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let holding = owners.entry(Principal::named(&row.get::<_, String>(0)?)).or_default();
            // A task whose state cannot be read is in no list.
            if let Ok(state) = schema::state(row.get_ref(1)?.as_str()?) {
                holding.states.add(state, row.get(2)?);
            }
            holding.bytes = holding.bytes.saturating_add(row.get(3)?);
        }
        Ok(Self { owners: Mutex::new(owners), ..Self::default() })
    }

    pub(super) fn kept(&self, owner: &Principal) -> Kept {
        self.lock().get(owner).map(Holding::kept).unwrap_or_default()
    }

    /// Returns the tasks of an owner in this state, or all of them, as the read sees them that `begin` begins.
    pub(super) fn count_at<E>(
        &self,
        begin: impl FnOnce() -> Result<(), E>,
        owner: &Principal,
        state: Option<State>,
    ) -> Result<usize, E> {
        let _moment = self.moment();
        begin()?;
        Ok(self.lock().get(owner).map_or(0, |holding| holding.states.of(state)))
    }

    /// Keeps commits and reads apart. The numbers stay readable meanwhile.
    pub(super) fn moment(&self) -> MutexGuard<'_, ()> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every owner has, ordered by owner.
    pub(super) fn owners(&self) -> Vec<(Principal, Kept)> {
        let mut owners: Vec<_> =
            self.lock().iter().map(|(owner, holding)| (owner.clone(), holding.kept())).collect();
        owners.sort_unstable_by(|(a, _), (b, _)| a.name().cmp(&b.name()));
        owners
    }

    /// The size of the file without free pages, as last measured.
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Takes over the changes of a transaction that was committed.
    pub(super) fn commit(&self, books: &mut Books) {
        self.size.store(books.room.size, Ordering::Relaxed);
        if books.changes.is_empty() {
            return;
        }
        let mut owners = self.lock();
        for (owner, change) in books.changes.drain(..) {
            match owners.get_mut(&owner) {
                Some(holding) => {
                    holding.add(&change);
                    if holding.states.of(None) == 0 {
                        owners.remove(&owner);
                    }
                }
                None => {
                    owners.insert(owner, change);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, Holding>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Holding ===

impl Holding {
    fn add(&mut self, change: &Self) {
        self.states.add_all(&change.states);
        self.bytes = self.bytes.saturating_add(change.bytes);
    }

    fn kept(&self) -> Kept {
        let Self { states, bytes } = self;
        Kept { tasks: states.of(None), finished: states.finished(), bytes: natural(*bytes) }
    }
}

// === impl Books ===

impl Books {
    pub(super) fn new(file: &Path, config: &Config) -> Self {
        Self { changes: Vec::new(), room: Room::new(file, config) }
    }

    /// Notes a change, which counts once the transaction is committed.
    pub(super) fn note(&mut self, owner: &Principal, change: Holding) {
        self.room.written += natural(change.bytes);
        match self.changes.last_mut() {
            Some((last, sum)) if last == owner => sum.add(&change),
            _ => self.changes.push((owner.clone(), change)),
        }
    }

    /// Drops the changes of a transaction that was rolled back.
    pub(super) fn roll_back(&mut self) {
        self.changes.clear();
    }
}

// === impl Room ===

impl Room {
    pub(super) fn new(file: &Path, config: &Config) -> Self {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self {
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            max: config.max_bytes,
            min_free: config.min_free,
            written: 0,
            measured: None,
            size: 0,
            full: None,
        }
    }

    /// Whether there is room for a new message; otherwise [`StoreError::Full`].
    pub(super) fn check(&mut self, connection: &Connection) -> Result<(), Fault> {
        let unmeasured = self.max.map_or(UNMEASURED, |max| UNMEASURED.min(max / UNMEASURED_PART));
        let is_current = self.full.is_none()
            && self.written < unmeasured
            && self.measured.is_some_and(|at| at.elapsed() < MEASURED);
        if !is_current {
            self.measure(connection)?;
        }
        match &self.full {
            Some(why) => Err(StoreError::Full(why.clone()).into()),
            None => Ok(()),
        }
    }

    pub(super) fn measure(&mut self, connection: &Connection) -> Result<(), Fault> {
        let pragma = |sql: &str| connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
        let pages = pragma("PRAGMA page_count")? - pragma("PRAGMA freelist_count")?;
        self.size = natural(pages * pragma("PRAGMA page_size")?);
        (self.written, self.measured) = (0, Some(Instant::now()));
        let full = self.fills_the_file().or_else(|| self.fills_the_disk());
        match (&self.full, &full) {
            (None, Some(why)) => tracing::error!(why, "the store is full; new messages are rejected"),
            (Some(_), None) => tracing::info!("the store has room again"),
            _ => {}
        }
        self.full = full;
        Ok(())
    }

    fn fills_the_file(&self) -> Option<String> {
        let max = self.max.filter(|max| self.size >= max - max / 8)?;
        Some(full(self.size, max))
    }

    fn fills_the_disk(&self) -> Option<String> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let (free, whole) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        let least = self.min_free.unwrap_or_else(|| MIN_FREE.min(whole / MIN_FREE_PART));
        let (free, least) = (free < least).then(|| (size_text(free), size_text(least)))?;
        Some(format!(
            "its disk has {free} left, less than {least}; make room on the disk, or lower `store.min_free`"
        ))
    }
}
