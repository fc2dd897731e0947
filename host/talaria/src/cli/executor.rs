//! The command line of `talaria executor`, for authors and operators of executors.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Target;
use crate::config::ExecutorName;

/// `talaria executor`
#[derive(Debug, Subcommand)]
pub(crate) enum Executor {
    /// List the executors, each with its component and whether it is ready.
    List(ExecutorList),
    /// Show an executor of the running host: version, readiness, needs, stored versions.
    Status(ExecutorNamed),
    /// Have the running host read the files of an executor again.
    Reload(ExecutorNamed),
    /// Upload a component, its configuration, or both to the running host, which puts it into service if it loads.
    Push(ExecutorPush),
    /// Take an executor of the running host out of service, and delete its files from the executors folder.
    Remove(ExecutorNamed),
    /// Show a component: its identity, its needs, its grant, and the lines that grant what is missing.
    Inspect(ExecutorInspect),
    /// Create the project of a new executor: sources, contract, settings, a test.
    New(ExecutorNew),
    /// Run a component offline against a scripted upstream, and show what it does.
    Test(ExecutorTest),
    /// Roll an executor back to its previous version.
    Rollback(ExecutorRollback),
}

/// `talaria executor list`
#[derive(Debug, Args)]
#[command(after_help = "\
Asks the running host. If none answers, or with --offline, it loads the files of the configuration as `talaria check` does.

Examples:
  talaria executor list
  talaria executor list --offline --config /etc/talaria.toml")]
pub(crate) struct ExecutorList {
    /// Look at files and ask no host
    #[arg(long, conflicts_with_all = ["admin", "token_env"])]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// An executor of the running host.
#[derive(Debug, Args)]
pub(crate) struct ExecutorNamed {
    /// The executor
    pub(crate) name: ExecutorName,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria executor push`
#[derive(Debug, Args)]
#[command(after_help = "\
The host loads and probes the upload first. If it is refused, nothing changes. Needs `admin.token`.

Examples:
  talaria executor push my-agent --component my-agent.wasm
  talaria executor push my-agent --component my-agent.wasm --policy my-agent.toml
  talaria executor push my-agent --policy my-agent.toml")]
pub(crate) struct ExecutorPush {
    /// The executor
    pub(crate) name: ExecutorName,
    /// The component; without it the present one stays
    #[arg(long, value_name = "FILE", required_unless_present = "policy")]
    pub(crate) component: Option<PathBuf>,
    /// Its settings and its grant; without them the present ones stay
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria executor inspect`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talaria executor inspect my-agent.wasm
  talaria executor inspect chat-completions --output json    an executor by its name")]
pub(crate) struct ExecutorInspect {
    /// The component's file, or the name of an executor
    #[arg(value_name = "FILE")]
    pub(crate) file: String,
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria executor rollback`
#[derive(Debug, Args)]
#[command(after_help = "\
Calls the host that runs with this configuration, at its `admin.listen`, with its `admin.token`. The previous version
stays in service until a file of the executor changes; a second rollback goes forward again.

Examples:
  talaria executor rollback my-agent
  talaria executor rollback my-agent --config /etc/talaria.toml")]
pub(crate) struct ExecutorRollback {
    /// The executor
    pub(crate) name: ExecutorName,
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria executor new`
#[derive(Debug, Args)]
#[command(after_help = "\
The project is written into ./NAME, which must not exist. Its README.md has the exact commands to build and test it.

Examples:
  talaria executor new my-agent --lang rust
  talaria executor new my-agent --lang python
  talaria executor new my-agent --lang js")]
pub(crate) struct ExecutorNew {
    /// Its name: a-z, 0-9 and -
    pub(crate) name: ExecutorName,
    /// The programming language
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub(crate) lang: Language,
}

/// A programming language with a template.
// No comments on the values: clap would make a paragraph of each in every help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Rust,
    Python,
    Js,
}

/// `talaria executor test`
#[derive(Debug, Args)]
#[command(after_help = "\
Loads the component as `talaria serve` does, then runs describe, setup, execute (blocking and streaming) and cancel. No
call leaves this process: a stub upstream answers all of them, from the cassette or as the gateway of `talaria serve
--demo` does. No environment variable is read, and secrets have made-up values.

A cassette is a TOML or JSON file with turns and the upstream's responses; docs/authors.md describes all keys:
  [[turn]]
  text = \"hello\"
  expect = [\"Hi\"]
  [[exchange]]
  request = \"POST https://api.example.com/v1/chat/completions\"
  json = { choices = [{ message = { content = \"Hi there\" } }] }

Exit code 0: all checks passed; 1: a check failed; 64: the command line or a file cannot be used.

Examples:
  talaria executor test my-agent.wasm
  talaria executor test my-agent.wasm --text 'hello, with a tool'
  talaria executor test my-agent.wasm --cassette cassette.toml --output json
  talaria executor test my-agent.wasm --learn")]
pub(crate) struct ExecutorTest {
    /// The component
    #[arg(value_name = "NAME.wasm")]
    pub(crate) component: PathBuf,
    /// Its settings and its grant [default: NAME.toml beside the component, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The turns and the upstream's responses [default: one turn, answered by the demo gateway]
    #[arg(long, value_name = "FILE")]
    pub(crate) cassette: Option<PathBuf>,
    /// The caller's message, instead of the cassette's turns
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Ignore the grant, record what the component needs, and print the smallest sufficient grant
    #[arg(long)]
    pub(crate) learn: bool,
}

// === impl Language ===

impl From<Language> for talaria_workbench::Language {
    fn from(language: Language) -> Self {
        match language {
            Language::Rust => Self::Rust,
            Language::Python => Self::Python,
            Language::Js => Self::Js,
        }
    }
}
