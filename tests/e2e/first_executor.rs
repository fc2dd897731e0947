//! The first executor of the documentation: dropped into the folder, loaded, and used for every turn.

use talaria_fakes::guest;

use crate::bridge::Start;

#[tokio::test]
async fn an_executor_in_twenty_lines_takes_turns() {
    let source = include_str!("../../examples/echo/src/lib.rs");
    assert!(source.lines().count() <= 20, "the README says twenty lines");
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("echo.wasm"), guest("echo")).unwrap();
    let bridge = Start::new(folder.path()).config("[executors]\ndefault = \"echo\"\n").up();
    assert_eq!(bridge.say("hello, world").await, "hello, world");
}
