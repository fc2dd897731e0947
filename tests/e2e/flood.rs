//! A guest with an empty grant cannot fill the memory, the disk or the log of the host.

use std::path::Path;

use talaria_fakes::guest;

use crate::bridge::{Bridge, Start};
use crate::swap::ask;

/// What a turn may put out by default.
const OUTPUT: u64 = 64 << 20;

/// The host after an attack.
struct After {
    said: String,
    /// The bytes by which its memory grew at most.
    memory: u64,
    /// The bytes of its database.
    disk: u64,
    log: String,
}

/// Runs one turn of the hostile executor in a host with a database in a file.
async fn attacked(attack: &str) -> After {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("hostile.wasm"), guest("hostile")).unwrap();
    let log = folder.path().join("log");
    let config = "[executors]\ndefault = \"conformance\"\ncaller_may_choose = true\n\
                  [store]\nurl = \"sqlite:tasks.db\"\n";
    let bridge = Start::new(folder.path()).config(config).log(&log).up();
    ask(&bridge, "hostile", "hash").await;
    let before = peak(&bridge);
    let said = ask(&bridge, "hostile", attack).await;
    let memory = peak(&bridge) - before;
    bridge.kill();
    let disk = ["tasks.db", "tasks.db-wal"].iter().map(|name| size(&folder.path().join(name))).sum();
    let log = std::fs::read_to_string(&log).unwrap();
    After { said, memory, disk, log }
}

/// The largest resident size of the host so far, in bytes.
fn peak(bridge: &Bridge) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", bridge.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[tokio::test]
async fn a_flood_of_empty_events_is_bounded_on_disk_and_in_memory() {
    let After { said, memory, disk, .. } = attacked("status 1000000").await;
    assert!(said.starts_with("65536: executor hostile may not put out more than 67108864 bytes"), "{said}");
    assert!(disk < 2 * OUTPUT, "{disk} bytes on disk");
    assert!(memory < 4 * OUTPUT, "grew by {memory} bytes");
}

#[tokio::test]
async fn a_flood_of_checkpoints_is_bounded_on_disk() {
    let After { said, disk, .. } = attacked("checkpoints 1000000 65536").await;
    assert!(said.contains("output = \"131072KiB\""), "{said}");
    assert!(disk < 2 * OUTPUT, "{disk} bytes on disk");
}

#[tokio::test]
async fn spans_fill_neither_the_memory_nor_the_log() {
    let After { said, memory, log, .. } = attacked("spans 900 15000000").await;
    assert_eq!(said, "900");
    assert!(memory < 3 * OUTPUT, "grew by {memory} bytes");
    assert!(log.len() < 256 << 10, "{} bytes of log", log.len());
    let After { said, log, .. } = attacked("span-name 100000 4000000").await;
    assert_eq!(said, "named");
    assert!(log.contains("span event") && log.len() < 256 << 10, "{} bytes of log", log.len());
}

#[tokio::test]
async fn a_guest_forges_no_line_of_the_hosts_log() {
    let forged = "forge 0 aLF2026-01-01T00:00:00Z ERROR talaria: forgedCRESC[2Jb";
    let After { said, log, .. } = attacked(forged).await;
    assert_eq!(said, "forged");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("forged")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines.iter().all(|line| line.contains(" INFO ") && line.contains("guest")), "{log}");
}
