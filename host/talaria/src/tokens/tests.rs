use std::fs;
use std::os::unix::fs::symlink;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use talaria_turns::Principal;
use tempfile::TempDir;

use super::*;

/// A folder of tokens, by caller, and who watches it.
struct Desk {
    folder: TempDir,
    auth: Auth,
    watch: Watch,
}

impl Desk {
    fn new(tokens: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in tokens {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let names: Vec<_> = tokens.iter().map(|(name, _)| *name).collect();
        Self::of(folder, &names)
    }

    fn of(folder: TempDir, names: &[&str]) -> Self {
        let tokens: Vec<_> = names
            .iter()
            .map(|name| {
                let path = folder.path().join(name);
                let token = config::read_secret(&path).unwrap();
                let (name, limits) = ((*name).into(), config::CallerLimits::default());
                config::Token { name, token, stream: None, limits, file: Some(path) }
            })
            .collect();
        let used = tokens.iter().map(|token| Token::new(token.name.clone(), token.token.clone()).unwrap());
        let auth = Auth::new(used.collect());
        let watch = Watch::new(&tokens, auth.clone()).unwrap();
        Self { folder, auth, watch }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Two looks: what does not change in between is taken.
    fn look(&mut self) {
        self.watch.look();
        self.watch.look();
    }

    fn knows(&self, name: &str, token: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        self.auth.caller(&headers) == Some(Principal::named(name))
    }

    fn logged(&self, at: usize) -> &str {
        self.watch.files[at].logged.as_deref().unwrap_or_default()
    }
}

#[test]
fn a_changed_file_renews_its_callers_token_and_no_others() {
    let mut desk = Desk::new(&[("alice", "a1\n"), ("bob", "b1")]);
    desk.look();
    assert!(desk.knows("alice", "a1") && desk.knows("bob", "b1"));
    desk.write("alice", "a2\n");
    desk.look();
    assert!(desk.knows("alice", "a2") && !desk.knows("alice", "a1") && desk.knows("bob", "b1"));
    desk.write("alice", "a3");
    desk.write("bob", "b3");
    desk.look();
    assert!(desk.knows("alice", "a3") && desk.knows("bob", "b3"));
}

#[test]
fn a_half_written_file_changes_nothing() {
    let mut desk = Desk::new(&[("alice", "a1")]);
    for half in ["", "a", "a2-and", "a2-and-more"] {
        desk.write("alice", half);
        desk.watch.look();
        assert!(desk.knows("alice", "a1"), "{half:?} was there for one look");
        assert_eq!(desk.logged(0), "", "and is not logged");
    }
    desk.watch.look();
    assert!(desk.knows("alice", "a2-and-more"));
}

#[test]
fn an_invalid_token_keeps_the_last_good_one() {
    let mut desk = Desk::new(&[("alice", "a1"), ("bob", "b1")]);
    let long = "x".repeat(9000);
    for (bad, why) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("two words", "visible ASCII"),
        ("line\nline", "visible ASCII"),
        ("Zürich", "visible ASCII"),
        (long.as_str(), "longer than"),
        ("b1", "another caller's"),
    ] {
        desk.write("alice", bad);
        desk.look();
        assert!(desk.knows("alice", "a1"), "{bad:?}");
        assert!(desk.logged(0).contains(why), "{bad:?}: {}", desk.logged(0));
    }
    desk.write("alice", b"\xff\xfe");
    desk.look();
    assert!(desk.knows("alice", "a1"));
    fs::remove_file(desk.folder.path().join("alice")).unwrap();
    desk.look();
    assert!(desk.knows("alice", "a1") && desk.logged(0).contains("cannot be read"), "{}", desk.logged(0));
    fs::create_dir(desk.folder.path().join("alice")).unwrap();
    desk.look();
    assert!(desk.knows("alice", "a1") && desk.logged(0).contains("not a regular file"), "{}", desk.logged(0));
    fs::remove_dir(desk.folder.path().join("alice")).unwrap();
    desk.write("alice", "a1");
    desk.look();
    assert_eq!(desk.logged(0), "", "back to the token in use; the next problem is logged again");
    desk.write("alice", "a2");
    desk.look();
    assert!(desk.knows("alice", "a2") && desk.knows("bob", "b1"));
}

#[test]
fn two_callers_can_swap_tokens() {
    let mut desk = Desk::new(&[("alice", "1"), ("bob", "2")]);
    desk.write("alice", "2");
    desk.write("bob", "1");
    desk.look();
    assert!(desk.knows("alice", "2") && desk.knows("bob", "1"));
}

/// As Kubernetes mounts a secret: a folder of its own, and the link `..data` swapped for one to it.
fn mount(root: &Path, version: &str, token: &str) {
    fs::create_dir(root.join(version)).unwrap();
    fs::write(root.join(version).join("alice"), token).unwrap();
    symlink(version, root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
}

#[test]
fn a_secret_swapped_by_a_symbolic_link_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    mount(folder.path(), "..1", "a1");
    symlink("..data/alice", folder.path().join("alice")).unwrap();
    let mut desk = Desk::of(folder, &["alice"]);
    mount(desk.folder.path(), "..2", "a2");
    fs::remove_dir_all(desk.folder.path().join("..1")).unwrap();
    desk.look();
    assert!(desk.knows("alice", "a2") && !desk.knows("alice", "a1"));
}

#[test]
fn tokens_of_the_environment_are_not_watched() {
    let token = config::Token {
        name: "alice".into(),
        token: SecretString::from("a1"),
        stream: None,
        limits: config::CallerLimits::default(),
        file: None,
    };
    assert!(Watch::new(&[token], Auth::default()).is_none());
}
