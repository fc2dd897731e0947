//! What a trial is given, and why it may not start.

use std::path::PathBuf;

use talaria_config::ConfigError;
use talaria_engine::{Compiler, EngineError, SessionKeys};
use talaria_observe::logs::InitError;

use crate::cassette_server::Responder;

/// What to test, and with what.
pub struct TrialOptions {
    /// The component's file.
    pub component: PathBuf,
    /// The file with settings and grant; by default the `.toml` beside the component, if it exists.
    pub config: Option<PathBuf>,
    /// The cassette's file.
    pub cassette: Option<PathBuf>,
    /// The only message to send, in place of the cassette's turns.
    pub text: Option<String>,
    /// The folder for compiled components.
    pub cache_dir: Option<PathBuf>,
    /// Where the component is compiled.
    pub compiler: Compiler,
    /// The metadata keys that set session variables.
    pub session_keys: SessionKeys,
    /// Answers calls if there is no cassette.
    pub responder: Responder,
    /// Receives notes for a person, like the progress of a compilation.
    pub note: fn(String),
}

/// Why a trial could not start.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The stub upstream could not listen.
    #[error("cannot start the stub upstream: {0}")]
    Listen(#[from] std::io::Error),
    /// The component's log events cannot be recorded.
    #[error(transparent)]
    Log(#[from] InitError),
    /// The engine could not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
