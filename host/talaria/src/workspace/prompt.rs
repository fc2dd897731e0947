//! `talaria workspace prompt`: prints the system prompt of the next turn, and the source of each part.

use std::fmt;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;
use talaria_workspace::Piece;

use crate::config::Config;

/// The context that a turn gets from the workspace.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    workspace: String,
    model: Option<String>,
    parts: Vec<Piece>,
    skills: Vec<String>,
    tools: Value,
    troubles: Vec<String>,
    #[serde(skip)]
    prompt: String,
}

impl Report {
    /// Reads the files of the workspace only; does not call the platform.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let workspace = config.workspace.as_ref();
        let workspace = workspace
            .context("this is no workspace: set WORKSPACE_ID, and WORKSPACE_CONFIG_PATH to its folder")?;
        let assembled = workspace.assembly.current();
        Ok(Self {
            workspace: workspace.id().to_owned(),
            model: assembled.workspace.model.clone(),
            parts: assembled.pieces.clone(),
            skills: assembled.skills.iter().map(|skill| skill.id.clone()).collect(),
            tools: serde_json::from_str(&assembled.workspace.tools)?,
            troubles: assembled.troubles.iter().map(ToString::to_string).collect(),
            prompt: assembled.workspace.system_prompt.clone().unwrap_or_default(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Piece { source, text } in &self.parts {
            writeln!(f, "--- {source} ({} bytes)\n{}", text.len(), text.trim_matches('\n'))?;
        }
        for trouble in &self.troubles {
            writeln!(f, "--- left out: {trouble}")?;
        }
        let tools = self.tools.as_array().map_or(0, Vec::len);
        write!(
            f,
            "--- workspace {}, model {}, {} bytes of prompt, skills: {}, tools: {tools}; peers and instructions of the platform come on top",
            self.workspace,
            self.model.as_deref().unwrap_or("of the executor"),
            self.prompt.len(),
            if self.skills.is_empty() { "none".to_owned() } else { self.skills.join(", ") },
        )
    }
}
