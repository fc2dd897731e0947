//! A bad configuration ends with 64 before any port opens, and says what to write instead.

use std::path::Path;

use crate::bridge::{run, stderr, talaria};

fn refused(folder: &Path, toml: &str) -> String {
    std::fs::write(folder.join("talaria.toml"), toml).unwrap();
    let output = run(talaria(folder).args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(64), "{toml}: {}", stderr(&output));
    assert!(output.stdout.is_empty(), "nothing was served");
    stderr(&output)
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_right_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let said = refused(folder.path(), "# a comment\n[a2a]\nlissten = \"127.0.0.1:0\"\n");
    for expected in ["talaria.toml:3", "a2a.lissten", "did you mean `listen`"] {
        assert!(said.contains(expected), "{expected} is not in: {said}");
    }
}

#[test]
fn wrong_values_are_named_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    for (toml, line, key) in [
        ("[a2a]\nlisten = \"everywhere\"", 2, "listen"),
        ("[executor.chat-completions]\ndeadline = \"soon\"", 2, "deadline"),
        ("[executor.chat-completions.grant]\negress = [\"POST nowhere\"]", 2, "egress"),
        ("[limits]\nturns = 0", 2, "turns"),
        ("[executors]\ndefault = \"nobody\"", 2, "default"),
    ] {
        let said = refused(folder.path(), toml);
        assert!(said.contains(&format!("talaria.toml:{line}")) && said.contains(key), "{toml}: {said}");
    }
}

#[test]
fn the_network_is_not_opened_to_everybody_by_accident() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(talaria(folder.path()).args(["serve", "--listen", "0.0.0.0:0"]));
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert!(stderr(&output).contains("open = true"), "{}", stderr(&output));
}

#[test]
fn a_taken_port_is_a_failed_start_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(talaria(folder.path()).args(["serve", "--listen", &address]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("cannot listen on {address}")), "{}", stderr(&output));
}
