//! The agent card: `talaria.toml` first, then the workspace's `config.yaml` and skills, then defaults.
//!
//! The files of the workspace may change at any time, so the card is computed when it is needed.

use std::sync::Arc;

use talaria_a2a::{CardConfig, Extension, Skill};
use talaria_workspace::{Assembled, Assembly};

use super::file;

/// Where the card comes from.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    file: file::Card,
    /// The workspace, if any.
    assembly: Option<Arc<Assembly>>,
}

// === impl Card ===

impl Card {
    pub(super) fn new(file: file::Card, assembly: Option<Arc<Assembly>>) -> Self {
        Self { file, assembly }
    }

    /// The current card. In a workspace this reads files.
    pub(crate) fn current(&self) -> CardConfig {
        let mut card = of_file(&self.file);
        if let Some(assembly) = &self.assembly {
            describe(&mut card, &self.file, &assembly.current());
        }
        card
    }

    /// Whether the card can change while the process runs.
    pub(crate) fn follows_files(&self) -> bool {
        self.assembly.is_some()
    }
}

fn of_file(file: &file::Card) -> CardConfig {
    let chat = || Skill {
        id: "chat".into(),
        name: "Chat".into(),
        description: "Hands a message to the agent and returns its answer.".into(),
        tags: vec!["chat".into()],
        examples: Vec::new(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
    };
    let skill = |skill: &file::Skill| Skill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
    };
    let extension = |extension: &file::Extension| Extension {
        uri: extension.uri.clone(),
        required: extension.required,
        description: None,
    };
    CardConfig {
        name: file.name.clone(),
        description: file.description.clone(),
        version: file.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").into()),
        // A card without skills is not valid.
        skills: file
            .skills
            .as_ref()
            .map_or_else(|| vec![chat()], |skills| skills.iter().map(skill).collect()),
        streaming: file.streaming,
        push_notifications: file.push_notifications,
        extended_card: file.extended_card,
        extensions: file.extensions.iter().map(extension).collect(),
        ..CardConfig::default()
    }
}

/// Adds what the workspace says to the keys that `talaria.toml` leaves out.
fn describe(card: &mut CardConfig, file: &file::Card, assembled: &Assembled) {
    let (default, manifest) = (file::Card::default(), &assembled.manifest);
    if let Some(name) = manifest.name.as_ref().filter(|_| file.name == default.name) {
        card.name.clone_from(name);
    }
    if file.description == default.description {
        card.description = manifest.description.clone().unwrap_or_else(|| card.name.clone());
    }
    if let Some(version) = manifest.version.as_ref().filter(|_| file.version.is_none()) {
        card.version.clone_from(version);
    }
    if file.skills.is_none() && !assembled.skills.is_empty() {
        let skill = |skill: &talaria_workspace::Skill| Skill {
            id: skill.id.clone(),
            name: skill.name.clone(),
            description: if skill.description.is_empty() {
                skill.name.clone()
            } else {
                skill.description.clone()
            },
            tags: skill.tags.clone(),
            examples: skill.examples.clone(),
            input_modes: Vec::new(),
            output_modes: Vec::new(),
        };
        card.skills = assembled.skills.iter().map(skill).collect();
    }
    card.streaming &= manifest.streaming;
    card.push_notifications &= manifest.push_notifications;
}
