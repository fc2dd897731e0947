//! Plugins: folders with rules, prompt fragments and skills.
//!
//! The workspace's own plugins come before the shared ones, and of two plugins with the same name the first is used.
//! `rules/*.md` are rules, `*.md` in the plugin's folder are fragments, `skills/` holds skills. No code of a plugin is run.
//!
//! [`install`] also writes the rules and fragments to the memory file, for agents that read that file themselves. Each
//! block begins with a marker line that names it. A block whose marker is already in the file is not written again, however
//! often this runs, so edits that people make below the marker stay.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::folder::{self, Reader, Trouble};
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
    pub(crate) folder: PathBuf,
    pub(crate) rules: Vec<Text>,
    pub(crate) fragments: Vec<Text>,
    /// The names of the folders below `skills/`.
    pub(crate) skills: Vec<String>,
}

/// A rule or fragment of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) file: String,
    pub(crate) source: String,
    pub(crate) text: String,
}

/// Loads the plugins in these folders.
pub(crate) fn load(folders: &[&Path], reader: &mut Reader) -> Vec<Plugin> {
    let mut plugins: Vec<Plugin> = Vec::new();
    for parent in folders {
        for name in reader.names(parent) {
            let folder = parent.join(&name);
            if name.starts_with('.') || !folder.is_dir() || plugins.iter().any(|known| known.name == name) {
                continue;
            }
            let skills = folder.join("skills");
            plugins.push(Plugin {
                rules: texts(&folder.join("rules"), reader, |_| true),
                fragments: texts(&folder, reader, |file| {
                    !NOT_FRAGMENTS.contains(&file.to_lowercase().as_str())
                }),
                skills: reader.names(&skills).into_iter().filter(|name| skills.join(name).is_dir()).collect(),
                name,
                folder,
            });
        }
    }
    plugins
}

/// Reads the Markdown files of a folder, sorted by name.
fn texts(folder: &Path, reader: &mut Reader, wanted: impl Fn(&str) -> bool) -> Vec<Text> {
    let mut texts = Vec::new();
    for file in reader.names(folder) {
        let path = folder.join(&file);
        if !file.ends_with(".md") || !wanted(&file) || path.is_dir() {
            continue;
        }
        if let Some(text) =
            reader.text(&path, FILE_BYTES).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        {
            texts.push(Text { file, source: path.to_string_lossy().into_owned(), text });
        }
    }
    texts
}

/// Appends the missing blocks to the memory file. Returns their number.
pub(crate) fn install(plugins: &[Plugin], memory: &Path) -> Result<usize, Trouble> {
    let before = folder::text(memory, MEMORY_BYTES)?.unwrap_or_default();
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
        let file = File::options().append(true).create(true).open(memory);
        let written = file.and_then(|mut file| file.write_all(format!("{end}{added}").as_bytes()));
        written.map_err(|error| Trouble::new(memory, format!("plugins not written ({error})")))?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let plugins = load(&[&own, &shared, &root.path().join("missing")], &mut reader);
        assert_eq!(reader.troubles, []);
        let names: Vec<_> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
        assert_eq!(names, ["style", "audit"]);
        let texts: Vec<_> = plugins[0].rules.iter().map(|rule| rule.text.as_str()).collect();
        assert_eq!(texts, ["own a", "own b"]);
        assert_eq!(
            (plugins[0].fragments.len(), plugins[0].skills.as_slice()),
            (1, ["lint".to_owned()].as_slice())
        );

        let memory = root.path().join(MEMORY_FILE);
        fs::write(&memory, "mine, no newline").unwrap();
        assert_eq!(install(&plugins, &memory).unwrap(), 4);
        let once = fs::read_to_string(&memory).unwrap();
        assert!(once.starts_with("mine, no newline\n\n# Plugin: style / rule: a.md\n\nown a\n"), "{once}");
        assert!(once.contains("\n# Plugin: style / fragment: hints.md\n\nhint\n"), "{once}");
        fs::write(&memory, once.replace("own a", "changed by hand")).unwrap();
        assert_eq!(install(&plugins, &memory).unwrap(), 0);
        assert!(fs::read_to_string(&memory).unwrap().contains("changed by hand"));
    }
}
