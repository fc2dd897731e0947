//! Plugins: folders with rules, prompt fragments and skills.
//!
//! The workspace's own plugins come before the shared ones, and of two plugins with the same name the first is used.
//! `rules/*.md` are rules, `*.md` in the plugin's folder are fragments, `skills/` holds skills. No code of a plugin is run, and
//! nothing outside the folder of a plugin is read for it.
//!
//! [`install`] also writes the rules and fragments to the memory file, for agents that read that file themselves. Each
//! block begins with a marker line that names it. A block whose marker is already in the file is not written again, however
//! often this runs, so edits that people make below the marker stay.

use crate::folder::{Folder, Reader, Trouble};
use crate::prompt::FILE_BYTES;

/// Markdown files that describe the plugin and are not fragments.
const NOT_FRAGMENTS: [&str; 4] = ["readme.md", "changelog.md", "license.md", "contributing.md"];

/// The default memory file: the one that agents read.
pub(crate) const MEMORY_FILE: &str = "CLAUDE.md";

/// The largest memory file that is appended to, in bytes. No prompt has room for more.
const MEMORY_BYTES: usize = 16 << 20;

/// A plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub(crate) name: String,
    pub(crate) rules: Vec<Text>,
    pub(crate) fragments: Vec<Text>,
    /// The folder of its skills, and their names.
    pub(crate) skills: Option<(Folder, Vec<String>)>,
}

/// A rule or fragment of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) file: String,
    pub(crate) source: String,
    pub(crate) text: String,
}

/// Loads the plugins in these folders.
pub(crate) fn load(folders: &[Folder], reader: &mut Reader) -> Vec<Plugin> {
    let mut plugins: Vec<Plugin> = Vec::new();
    for parent in folders {
        for name in reader.names(parent) {
            if plugins.iter().any(|known| known.name == name) {
                continue;
            }
            let Some(folder) = reader.enter(parent, &name) else { continue };
            let rules = reader.enter(&folder, "rules");
            let skills = reader.enter(&folder, "skills");
            plugins.push(Plugin {
                rules: rules.map(|rules| texts(&rules, reader, |_| true)).unwrap_or_default(),
                fragments: texts(&folder, reader, |file| {
                    !NOT_FRAGMENTS.contains(&file.to_lowercase().as_str())
                }),
                skills: skills.map(|skills| {
                    let mut names = reader.names(&skills);
                    names.retain(|name| skills.path().join(name).is_dir());
                    (skills, names)
                }),
                name,
            });
        }
    }
    plugins
}

/// Reads the Markdown files of a folder, sorted by name.
fn texts(folder: &Folder, reader: &mut Reader, wanted: impl Fn(&str) -> bool) -> Vec<Text> {
    let mut texts = Vec::new();
    for file in reader.names(folder) {
        let path = folder.path().join(&file);
        if !file.ends_with(".md") || !wanted(&file) || path.is_dir() {
            continue;
        }
        let text = reader.text(folder, &file, FILE_BYTES).map(|text| text.trim().to_owned());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            texts.push(Text { file, source: path.to_string_lossy().into_owned(), text });
        }
    }
    texts
}

/// Appends the missing blocks to the memory file in a folder. Returns their number.
pub(crate) fn install(plugins: &[Plugin], folder: &Folder) -> Result<usize, Trouble> {
    let before = folder.text(MEMORY_FILE, MEMORY_BYTES)?.unwrap_or_default();
    let mut lines: std::collections::HashSet<&str> = before.lines().map(str::trim).collect();
    let blocks: Vec<(String, &str)> = plugins
        .iter()
        .flat_map(|plugin| {
            let block =
                |kind: &str, text: &'_ Text| format!("# Plugin: {} / {kind}: {}", plugin.name, text.file);
            let rules = plugin.rules.iter().map(move |text| (block("rule", text), text.text.as_str()));
            let fragments =
                plugin.fragments.iter().map(move |text| (block("fragment", text), text.text.as_str()));
            rules.chain(fragments)
        })
        .collect();
    let mut added = String::new();
    let mut count = 0;
    for (marker, text) in &blocks {
        if lines.insert(marker) {
            let gap = if before.is_empty() && added.is_empty() { "" } else { "\n" };
            added.push_str(&format!("{gap}{marker}\n\n{text}\n"));
            count += 1;
        }
    }
    if count > 0 {
        let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
        folder.append(MEMORY_FILE, &format!("{end}{added}"))?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn own_plugins_come_first_and_a_second_install_writes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("own/style/rules/b.md", "own b\n");
        write("own/style/rules/a.md", "own a");
        write("own/style/README.md", "about");
        write("own/style/hints.md", "hint");
        write("own/style/skills/lint/SKILL.md", "lint");
        write("own/.hidden/rules/x.md", "x");
        write("own/file.md", "not a plugin");
        write("shared/style/rules/z.md", "shadowed");
        write("shared/audit/rules/r.md", "shared r");
        let (own, shared) = (root.path().join("own"), root.path().join("shared"));
        let mut reader = Reader::default();
        let folders = [own, shared, root.path().join("missing")].map(|path| Folder::open(&path));
        let plugins = load(&folders, &mut reader);
        assert_eq!(reader.troubles, []);
        let names: Vec<_> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
        assert_eq!(names, ["style", "audit"]);
        let texts: Vec<_> = plugins[0].rules.iter().map(|rule| rule.text.as_str()).collect();
        assert_eq!(texts, ["own a", "own b"]);
        let skills = plugins[0].skills.as_ref().unwrap().1.as_slice();
        assert_eq!((plugins[0].fragments.len(), skills), (1, ["lint".to_owned()].as_slice()));

        let memory = root.path().join(MEMORY_FILE);
        fs::write(&memory, "mine, no newline").unwrap();
        let folder = Folder::open(root.path());
        assert_eq!(install(&plugins, &folder).unwrap(), 4);
        let once = fs::read_to_string(&memory).unwrap();
        assert!(once.starts_with("mine, no newline\n\n# Plugin: style / rule: a.md\n\nown a\n"), "{once}");
        assert!(once.contains("\n# Plugin: style / fragment: hints.md\n\nhint\n"), "{once}");
        fs::write(&memory, once.replace("own a", "changed by hand")).unwrap();
        assert_eq!(install(&plugins, &folder).unwrap(), 0);
        assert!(fs::read_to_string(&memory).unwrap().contains("changed by hand"));
        // A link within the folder is what people use for agents that read another name.
        fs::rename(&memory, root.path().join("AGENTS.md")).unwrap();
        symlink("AGENTS.md", &memory).unwrap();
        assert_eq!(install(&plugins, &folder).unwrap(), 0);
    }

    #[test]
    fn plugins_are_never_written_through_a_link_that_leads_out() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("configs/plugins/p/rules")).unwrap();
        fs::write(at("configs/plugins/p/rules/r.md"), "rule").unwrap();
        let folder = Folder::open(&at("configs"));
        let mut reader = Reader::default();
        let plugins = load(&[reader.enter(&folder, "plugins").unwrap()], &mut reader);
        for target in ["outside", "missing"] {
            fs::write(at("outside"), "text").unwrap();
            symlink(at(target), at("configs/CLAUDE.md")).unwrap();
            assert!(install(&plugins, &folder).is_err(), "{target}");
            assert_eq!(fs::read_to_string(at("outside")).unwrap(), "text");
            assert!(!at("missing").exists());
            fs::remove_file(at("configs/CLAUDE.md")).unwrap();
        }
        assert_eq!(install(&plugins, &folder).unwrap(), 1);
        assert!(fs::read_to_string(at("configs/CLAUDE.md")).unwrap().ends_with("rule\n"));
    }
}
