//! With a bad configuration the process exits with 64 before it opens a port, and names the fix.

use std::path::Path;

use crate::bridge::{run, stderr, talaria};

fn rejected(folder: &Path, toml: &str) -> String {
    std::fs::write(folder.join("talaria.toml"), toml).unwrap();
    let output = run(talaria(folder).args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(64), "{toml}: {}", stderr(&output));
    assert!(output.stdout.is_empty(), "nothing was served");
    stderr(&output)
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_right_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let said = rejected(folder.path(), "# a comment\n[a2a]\nlissten = \"127.0.0.1:0\"\n");
    for expected in ["talaria.toml:3", "a2a.lissten", "did you mean `listen`"] {
        assert!(said.contains(expected), "{expected} is not in: {said}");
    }
}

#[test]
fn a_bad_value_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (toml, line, key) in [
        ("[a2a]\nlisten = \"everywhere\"", 2, "listen"),
        ("[executor.chat-completions]\ndeadline = \"soon\"", 2, "deadline"),
        ("[executor.chat-completions.grant]\negress = [\"POST nowhere\"]", 2, "egress"),
        ("[limits]\nturns = 0", 2, "turns"),
        ("[executors]\ndefault = \"nobody\"", 2, "default"),
    ] {
        let said = rejected(folder.path(), toml);
        assert!(said.contains(&format!("talaria.toml:{line}")) && said.contains(key), "{toml}: {said}");
    }
}

#[test]
fn a_public_address_without_tokens_must_be_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(talaria(folder.path()).args(["serve", "--listen", "0.0.0.0:0"]));
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert!(stderr(&output).contains("open = true"), "{}", stderr(&output));
}

#[test]
fn names_a_port_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(talaria(folder.path()).args(["serve", "--listen", &address]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("cannot listen on {address}")), "{}", stderr(&output));
}
