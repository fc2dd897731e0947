//! Files that cannot be used, links, config maps, and changes.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_file_that_cannot_be_used_is_reported_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("good", "text ä".as_bytes());
    write("long", &[b'x'; 101]);
    write("binary", b"a\0b");
    write("latin", b"\xe4");
    let mut reader = Reader::default();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let folder = Folder::open(folder.path());
    let mut read = |name: &str| reader.text(&folder, name, 100);
    assert_eq!(read("good").as_deref(), Some("text ä"));
    for bad in ["long", "binary", "latin", "folder", "missing", "good/below"] {
        assert_eq!(read(bad), None, "{bad}");
    }
    let said: Vec<_> = reader.troubles.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 4, "a missing file is not a problem: {said:?}");
    assert!(said[0].ends_with("long: is longer than 100 bytes; left out"), "{said:?}");
}

#[test]
fn names_lead_neither_out_of_the_folder_nor_to_hidden_files() {
    let folder = Folder::open(Path::new("/configs"));
    assert_eq!(folder.join("prompts/a.md").unwrap(), Path::new("/configs/prompts/a.md"));
    assert_eq!(folder.join("./a.md").unwrap(), Path::new("/configs/./a.md"));
    for name in
        ["", " ", "../x", "a/../../x", "/etc/passwd", "a\nb", "a\0b", ".auth_token", "a/.env", "..data/x"]
    {
        let trouble = folder.join(name).unwrap_err().to_string();
        assert!(!trouble.contains(['\n', '\0']), "{trouble:?}");
    }
}

#[test]
fn links_are_followed_within_their_folder_and_never_to_a_hidden_file() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for folder in ["configs/sub", "configs/.git", "elsewhere"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for file in ["configs/sub/text", "configs/.auth_token", "configs/.git/config", "elsewhere/text"] {
        fs::write(at(file), file).unwrap();
    }
    // Any of these may be a link: the folder itself, an absolute one, a chain.
    symlink(at("configs"), at("linked")).unwrap();
    for (link, target) in [
        ("inside", "sub/text"),
        ("chain", "inside"),
        ("absolute", at("configs/sub/text").to_str().unwrap()),
        ("through", at("linked/sub/text").to_str().unwrap()),
        ("out", "../elsewhere/text"),
        ("out-of-system", "/etc/passwd"),
        ("folder-out", "../elsewhere"),
        ("token", ".auth_token"),
        ("git", ".git"),
        ("nowhere", "missing"),
    ] {
        symlink(target, at("configs").join(link)).unwrap();
    }
    for folder in ["configs", "linked"].map(|name| Folder::open(&at(name))) {
        let mut reader = Reader::default();
        for name in ["sub/text", "inside", "chain", "absolute", "through"] {
            assert_eq!(reader.text(&folder, name, 100).as_deref(), Some("configs/sub/text"), "{name}");
        }
        assert_eq!(reader.text(&folder, "nowhere", 100), None);
        assert_eq!(reader.troubles, []);
        for name in ["out", "out-of-system", "folder-out/text", "token", "git/config"] {
            assert_eq!(reader.text(&folder, name, 10_000), None, "{name}");
            let trouble = reader.troubles.pop().unwrap().to_string();
            assert!(trouble.contains(name) && trouble.contains("is a link"), "{trouble}");
        }
        assert!(reader.enter(&folder, "sub").is_some());
        assert!(reader.enter(&folder, "folder-out").is_none() && reader.enter(&folder, "git").is_none());
        assert_eq!(reader.troubles.len(), 2, "{:?}", reader.troubles);
    }
}

#[test]
fn a_config_map_of_kubernetes_can_be_read() {
    // As the kubelet mounts it: every entry is a link into `..data`, which is a link to the current version.
    let root = tempfile::tempdir().unwrap();
    let version = root.path().join("..2026_11_18_12_00_00.1234567890");
    fs::create_dir_all(version.join("skills/look")).unwrap();
    fs::write(version.join("prompt.md"), "prompt").unwrap();
    fs::write(version.join("skills/look/SKILL.md"), "skill").unwrap();
    fs::write(version.join(".token"), "token").unwrap();
    symlink(version.file_name().unwrap(), root.path().join("..data")).unwrap();
    for (link, target) in
        [("prompt.md", "..data/prompt.md"), ("skills", "..data/skills"), ("token.md", "..data/.token")]
    {
        symlink(target, root.path().join(link)).unwrap();
    }
    let (folder, mut reader) = (Folder::open(root.path()), Reader::default());
    assert_eq!(reader.names(&folder), ["prompt.md", "skills", "token.md"]);
    assert_eq!(reader.text(&folder, "prompt.md", 100).as_deref(), Some("prompt"));
    let skills = reader.enter(&folder, "skills").unwrap();
    let look = reader.enter(&skills, "look").unwrap();
    assert_eq!(reader.text(&look, "SKILL.md", 100).as_deref(), Some("skill"));
    assert_eq!(reader.text(&folder, "token.md", 100), None, "hidden, although a link leads to it");
    // The name is not for people to write.
    assert_eq!(reader.text(&folder, "..data/prompt.md", 100), None);
    assert_eq!(reader.troubles.len(), 2, "{:?}", reader.troubles);
}

#[test]
fn a_change_is_noticed_and_unchanged_files_stay_current() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let seen = |path: &Path| {
        let mut reader = Reader::default();
        let folder = Folder::open(path.parent().unwrap());
        reader.text(&folder, path.file_name().unwrap().to_str().unwrap(), 100);
        reader.names(&folder);
        reader.seen().0
    };
    let old = SystemTime::now() - Duration::from_secs(5);
    let age = |path: &Path| File::open(path).unwrap().set_modified(old).unwrap();
    age(folder.path());
    let missing = seen(&path);
    assert!(missing.is_current());
    fs::write(&path, "one").unwrap();
    assert!(!missing.is_current(), "the file exists now");
    assert!(!seen(&path).is_current(), "the file has just changed");
    age(&path);
    age(folder.path());
    let settled = seen(&path);
    assert!(settled.is_current());
    fs::write(&path, "two").unwrap();
    age(&path);
    assert!(!settled.is_current(), "same length and time, different content");
}
