//! The command line and its help.
//!
//! This module only parses. A bad command line ends with exit code 64, like any other bad configuration, and not with clap's
//! 2; `--help` and `--version` succeed.

mod executor;
mod operator;
mod send;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use talaria_executors::route::Query;

use crate::config::Overrides;
use crate::output::Format;

pub(crate) use executor::{Executor, ExecutorList, ExecutorNew, ExecutorTest};
pub(crate) use operator::{Health, Status, Target, TaskFilter, Tasks};
pub(crate) use send::Send;
pub(crate) use store::Store;

/// A command line, configuration or address that cannot be used (`EX_USAGE`).
pub(crate) const EXIT_USAGE: u8 = 64;

/// Talaria: an A2A server that runs each executor as a sandboxed WebAssembly component.
#[derive(Debug, Parser)]
#[command(
    name = "talaria",
    version,
    max_term_width = 110,
    after_help = "\
Try it without an agent of your own:
  talaria serve --demo
  talaria send http://127.0.0.1:8000 'hello'

Exit codes: 0 done, 1 failed, 64 the command line or the configuration cannot be used."
)]
pub(crate) struct Cli {
    /// How results are printed: for people, or as one JSON document
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT", display_order = 900)]
    pub(crate) output: Format,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve A2A: accept messages, run each in an executor, and reply.
    Serve(Serve),
    /// Check the configuration and the executors, and show what each executor needs and is granted.
    Check(Check),
    /// Diagnose this machine: ports, gateway, keys, plugin, folders. Each finding comes with its fix.
    Doctor(Doctor),
    /// Show what the running host does: readiness, load, executors.
    Status(Status),
    /// List, show, cancel and watch the tasks of all callers of the running host.
    #[command(subcommand)]
    Tasks(Tasks),
    /// Ask whether the running host is alive or ready; the exit code is the answer.
    Health(Health),
    /// Send a message to an A2A agent and print its reply.
    Send(Send),
    /// Inspect the rules that choose the executor of a message.
    #[command(subcommand)]
    Route(RouteCommand),
    /// List, inspect, create, test and change executors.
    #[command(subcommand)]
    Executor(Executor),
    /// Back up, restore and check the store of tasks.
    #[command(subcommand)]
    Store(Store),
    /// Inspect the workspace that WORKSPACE_ID names.
    #[command(subcommand)]
    Workspace(Workspace),
}

/// `talaria serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Without a file and without flags, it listens on 127.0.0.1:8000 and forwards every message to the Hermes gateway at
HERMES_API_BASE (default: http://127.0.0.1:8642/v1), with the key in API_SERVER_KEY.

Examples:
  talaria serve --demo                                    with a built-in demo gateway
  HERMES_API_BASE=http://gateway:8642/v1 talaria serve    another gateway
  talaria serve --config /etc/talaria.toml                all keys: docs/configuration.md
  talaria serve --log debug,hyper=info --log-format json")]
pub(crate) struct Serve {
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run a demo gateway in this process, which answers turns without a Hermes gateway
    #[arg(long)]
    pub(crate) demo: bool,
    /// The address to listen on; overrides `a2a.listen` of the file [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    // A doc comment here would replace the command's own.
    #[command(flatten)]
    pub(crate) log: Log,
}

/// The options for logging.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The log filter: a level (error, warn, info, debug, trace), or levels by target
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "RUST_LOG",
        default_value = "info",
        hide_env_values = true
    )]
    pub(crate) filter: String,
    /// The format of log lines
    #[arg(long = "log-format", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: LogFormat,
}

/// The format of log lines: text for people, or one JSON object per line.
// No comments on the values: clap would make a paragraph of each in every help.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `talaria check`
#[derive(Debug, Args)]
#[command(after_help = "\
Loads everything as `talaria serve` does, probes the executors and tries whether the store can be written, but opens no
port, changes nothing and resumes no turn. It may run beside the host.

Exit code 0: every executor is ready and the store can be written; 1: an executor does not load, is denied what its
probe needs, or its upstream does not answer or rejects its key; or the store cannot be written; 64: the configuration
cannot be used.

Examples:
  talaria check
  talaria check --config /etc/talaria.toml --output json")]
pub(crate) struct Check {
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Changes nothing and starts nothing.

Exit code 0: no problems; 1: at least one failure; 2: warnings only; 64: the configuration cannot be used.

Examples:
  talaria doctor
  talaria doctor --config /etc/talaria.toml --output json")]
pub(crate) struct Doctor {
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria route`
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Show which executor would take a message, and why each rule matches it or does not.
    Explain(Explain),
}

/// `talaria route explain`
#[derive(Debug, Args)]
#[command(after_help = "\
Reads the configuration only; loads no executor and makes no call. A rule with a weight takes a percentage of
contexts; give --context to find out whether it takes this one.

Exit code 0: an executor would take the message; 1: the message would be rejected; 64: the configuration cannot be used.

Examples:
  talaria route explain --skill papers --principal platform
  talaria route explain --tenant acme --context 0190d5a0-… --output json
  talaria route explain '{\"message\":{\"contextId\":\"c\",\"metadata\":{\"tier\":\"gold\"}}}'")]
pub(crate) struct Explain {
    /// The message: text, or the JSON of a message or request, from which metadata, tenant and context are taken
    pub(crate) text: Option<String>,
    /// The tenant of the request
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// The caller: the name of its token [default: an anonymous caller]
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Option<String>,
    /// The skill that the message names
    #[arg(long, value_name = "ID")]
    pub(crate) skill: Option<String>,
    /// The model that the message asks for
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Other metadata of the message: KEY=VALUE, where VALUE is JSON, else text; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = metadata)]
    pub(crate) metadata: Vec<(String, serde_json::Value)>,
    /// The context id
    #[arg(long, value_name = "ID")]
    pub(crate) context: Option<talaria_turns::ContextId>,
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria workspace`
#[derive(Debug, Subcommand)]
pub(crate) enum Workspace {
    /// Print the system prompt of the next turn, and the source of each part.
    Prompt(Prompt),
}

/// `talaria workspace prompt`
#[derive(Debug, Args)]
#[command(after_help = "\
Reads only the files of the workspace. The platform adds instructions, peers, and what the parent shares.

Exit code 0: printed; 1: WORKSPACE_ID is not set; 64: the configuration cannot be used.

Example:
  WORKSPACE_ID=ws-1 WORKSPACE_CONFIG_PATH=/configs talaria workspace prompt --output json")]
pub(crate) struct Prompt {
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `KEY=VALUE`
fn metadata(text: &str) -> Result<(String, serde_json::Value), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

// === impl Cli ===

impl Cli {
    /// Parses the arguments of the process. Prints help, version and errors, and returns the exit code for these.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| {
            // Help goes to standard output, errors to standard error. A closed pipe is not a failure.
            drop(error.print());
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(EXIT_USAGE),
            }
        })
    }
}

impl From<&Serve> for Overrides {
    fn from(serve: &Serve) -> Self {
        Self { file: serve.config.clone(), listen: serve.listen, demo: serve.demo }
    }
}

impl From<&Check> for Overrides {
    fn from(check: &Check) -> Self {
        Self { file: check.config.clone(), listen: None, demo: false }
    }
}

impl From<&Store> for Overrides {
    fn from(store: &Store) -> Self {
        Self { file: store.config().cloned(), listen: None, demo: false }
    }
}

impl From<&Explain> for Overrides {
    fn from(explain: &Explain) -> Self {
        Self { file: explain.config.clone(), listen: None, demo: false }
    }
}

impl From<&Explain> for Query {
    fn from(explain: &Explain) -> Self {
        Self {
            text: explain.text.clone(),
            tenant: explain.tenant.clone(),
            principal: explain.principal.clone(),
            skill: explain.skill.clone(),
            model: explain.model.clone(),
            metadata: explain.metadata.clone(),
            context: explain.context.clone(),
        }
    }
}

impl From<&Doctor> for Overrides {
    fn from(doctor: &Doctor) -> Self {
        Self { file: doctor.config.clone(), listen: None, demo: false }
    }
}

impl From<&Prompt> for Overrides {
    fn from(prompt: &Prompt) -> Self {
        Self { file: prompt.config.clone(), listen: None, demo: false }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::send::Protocol;
    use super::*;
    use crate::config::Period;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_takes_its_flags() {
        let cli =
            parse("talaria serve --config a.toml --demo --listen 127.0.0.1:1 --log warn --log-format json")
                .expect("valid");
        let Command::Serve(serve) = cli.command else { panic!("serve") };
        let overrides = Overrides::from(&serve);
        assert_eq!(overrides.file, Some("a.toml".into()));
        assert_eq!(overrides.listen, Some(([127, 0, 0, 1], 1).into()));
        assert!(serve.demo);
        assert_eq!((serve.log.filter.as_str(), serve.log.format), ("warn", LogFormat::Json));
    }

    #[test]
    fn send_takes_its_flags() {
        let line = "talaria send http://a hi --protocol 0.3 --context c --task t --token-env T --timeout 2m --stream --output json";
        let cli = parse(line).expect("valid");
        assert_eq!(cli.output, Format::Json);
        let Command::Send(send) = cli.command else { panic!("send") };
        assert_eq!((send.url.as_str(), send.text.as_str()), ("http://a", "hi"));
        assert_eq!(send.protocol, Some(Protocol::V0_3));
        assert_eq!((send.context.as_deref(), send.task.as_deref()), (Some("c"), Some("t")));
        assert_eq!((send.timeout, send.stream), (Period::secs(120), true));
    }

    #[test]
    fn errors_name_the_argument() {
        let error = |line: &str| parse(line).expect_err("a mistake").to_string();
        assert_eq!(error("talaria -V"), format!("talaria {}\n", env!("CARGO_PKG_VERSION")));
        assert!(error("talaria serv").contains("a similar subcommand exists: 'serve'"));
        assert!(error("talaria serve --listen here").contains("invalid socket address syntax"));
        assert!(error("talaria send http://a hi --timeout soon").contains("`soon` is no duration"));
        assert!(error("talaria send http://a hi --protocol 2.0").contains("[possible values: 0.3, 1.0]"));
    }

    #[test]
    fn help_is_as_reviewed() {
        for (name, arguments) in [
            ("talaria", "talaria --help"),
            ("serve", "talaria serve --help"),
            ("check", "talaria check --help"),
            ("executor", "talaria executor --help"),
            ("executor-inspect", "talaria executor inspect --help"),
            ("send", "talaria send --help"),
            ("route-explain", "talaria route explain --help"),
            ("executor-new", "talaria executor new --help"),
            ("executor-test", "talaria executor test --help"),
            ("status", "talaria status --help"),
            ("health", "talaria health --help"),
            ("tasks", "talaria tasks --help"),
            ("tasks-list", "talaria tasks list --help"),
            ("tasks-show", "talaria tasks show --help"),
            ("tasks-watch", "talaria tasks watch --help"),
            ("executor-push", "talaria executor push --help"),
            ("doctor", "talaria doctor --help"),
            ("store", "talaria store --help"),
            ("store-backup", "talaria store backup --help"),
            ("store-restore", "talaria store restore --help"),
            ("store-check", "talaria store check --help"),
            ("workspace", "talaria workspace --help"),
            ("workspace-prompt", "talaria workspace prompt --help"),
        ] {
            let help = parse(arguments).expect_err("help is no command").to_string();
            insta::assert_snapshot!(format!("help-{name}"), help);
        }
    }
}
