//! Checks whether the agent gets the tools that this host serves: hermes-agent must list the server and be able to speak MCP.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use talaria_config::files;

use super::Examination;
use crate::gateway::tools_in;

const NAME: &str = "tools";

impl Examination<'_> {
    /// Checks the gateway's view of the tools, which are served at `url`.
    pub(super) fn tools(&mut self, url: &str) {
        let Some(home) = self.subject.home() else {
            let finding = format!("it is not known whether the agent uses the tools at {url}");
            return self.findings.ok(NAME, finding);
        };
        let config = home.path().join("config.yaml");
        match tools_in(&home) {
            Some(listed) if listed == url => {
                self.findings.ok(NAME, format!("{} lists the tools at {url}", config.display()));
            }
            Some(listed) => self.findings.warn(
                NAME,
                format!("{} lists the tools at {listed}, and they are served at {url}", config.display()),
                "restart talaria with `[gateway]`, which writes the file, or correct `tools.listen`",
            ),
            // A supervised gateway gets them when it starts.
            None if self.subject.supervised.is_some() && !config.exists() => {
                self.findings.ok(NAME, format!("{} will list the tools at {url}", config.display()));
            }
            None => self.findings.warn(
                NAME,
                format!(
                    "{} does not list the tools at {url}, so the agent cannot delegate",
                    config.display()
                ),
                "set `[gateway]`, which writes them there; or add the server by hand, see docs/workspace.md",
            ),
        }
        let command = self.subject.supervised.and_then(|gateway| gateway.launch.command.first().cloned());
        let path = self.subject.env.get("PATH").unwrap_or_default();
        let program = find(command.as_deref().unwrap_or("hermes"), &path);
        if let Some(packages) = program.and_then(|program| packages(&program))
            && !packages.join("mcp").is_dir()
        {
            self.findings.fail(
                NAME,
                format!(
                    "hermes-agent has no MCP client in {}, and ignores its tools silently",
                    packages.display()
                ),
                "install the extra: pip install 'hermes-agent[mcp]'",
            );
        }
    }
}

/// The file of a program.
fn find(program: &str, path: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    path.split(':').map(|folder| Path::new(folder).join(program)).find(|file| file.is_file())
}

/// The folder of the Python packages that a script uses, if hermes-agent is among them.
fn packages(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = files::open(script).ok()?;
    files::must_be_regular(&file).ok()?;
    file.take(4096).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let interpreter = head.lines().next()?.strip_prefix("#!")?.split_whitespace().next()?.to_owned();
    let lib = Path::new(&interpreter).parent()?.parent()?.join("lib");
    let is_package = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("hermes_agent") && name.ends_with(".dist-info")
    };
    fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join("site-packages")).find(|packages| {
        fs::read_dir(packages).is_ok_and(|entries| entries.flatten().any(|entry| is_package(&entry)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_a_script_are_found() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("bin")).unwrap();
        fs::create_dir_all(path("lib/python3.12/site-packages/hermes_agent-0.19.0.dist-info")).unwrap();
        fs::write(path("bin/hermes"), format!("#!{}\nimport sys\n", path("bin/python").display())).unwrap();
        let script = find("hermes", &format!("/nowhere:{}", path("bin").display())).unwrap();
        assert_eq!(packages(&script).unwrap(), path("lib/python3.12/site-packages"));
        fs::write(path("bin/hermes"), "#!/bin/sh\n").unwrap();
        assert_eq!(packages(&script), None, "not a script of Python");
        assert_eq!(packages(&path("bin/none")), None);
    }
}
