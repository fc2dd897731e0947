//! The command line and its help.
//!
//! This module only parses. A bad command line ends with exit code 64, like any other bad configuration, and not with clap's
//! 2; `--help` and `--version` succeed.

mod executor;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use talaria_client::send::{self, SendOptions};
use talaria_executors::route::Query;

use crate::config::{Overrides, Period};
use crate::output::Format;

pub(crate) use executor::{Executor, ExecutorNew, ExecutorTest};

/// A command line, configuration or address that cannot be used (`EX_USAGE`).
pub(crate) const EXIT_USAGE: u8 = 64;

/// Talaria carries an agent's turns: an A2A server whose transports are sandboxed WebAssembly components.
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
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve A2A: take messages, run them through an executor, answer.
    Serve(Serve),
    /// Check the configuration and the executors, and say what each needs and is granted.
    Check(Check),
    /// Look for what is wrong with this machine: ports, gateway, keys, plugin, folders; each finding with its fix.
    Doctor(Doctor),
    /// Send a message to an A2A agent and print its reply.
    Send(Send),
    /// Look at the rules that choose the executor of a message.
    #[command(subcommand)]
    Route(RouteCommand),
    /// Look at executors, write and try your own, roll one back.
    #[command(subcommand)]
    Executor(Executor),
    /// Look at the workspace that is served where WORKSPACE_ID is set.
    #[command(subcommand)]
    Workspace(Workspace),
}

/// `talaria serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Without a file and without flags it serves on 127.0.0.1:8000 and forwards every message to the Hermes gateway at
HERMES_API_BASE (http://127.0.0.1:8642/v1), with API_SERVER_KEY as its key.

Examples:
  talaria serve --demo                                    a gateway that answers by itself is built in
  HERMES_API_BASE=http://gateway:8642/v1 talaria serve    another gateway
  talaria serve --config /etc/talaria.toml                everything else: docs/configuration.md
  talaria serve --log debug,hyper=info --log-format json")]
pub(crate) struct Serve {
    /// The configuration file [default: talaria.toml in the working directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Start a stand-in for the Hermes gateway in this process, so that turns are answered without one
    #[arg(long)]
    pub(crate) demo: bool,
    /// The address to listen on, before the file's `a2a.listen` [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    // A doc comment here would replace the command's own.
    #[command(flatten)]
    pub(crate) log: Log,
}

/// What is logged, and how.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// What is logged: a level (error, warn, info, debug, trace), or levels by target
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "RUST_LOG",
        default_value = "info",
        hide_env_values = true
    )]
    pub(crate) filter: String,
    /// How it is logged
    #[arg(long = "log-format", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: LogFormat,
}

/// How log lines look: for people, or one JSON object a line.
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
Loads everything as `talaria serve` would, probes the executors, and opens no port. Exit code 0: all is well;
1: an executor does not load or its upstream does not answer; 64: the configuration cannot be used.

Examples:
  talaria check
  talaria check --config /etc/talaria.toml --output json")]
pub(crate) struct Check {
    /// The configuration file [default: talaria.toml in the working directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Changes nothing and starts nothing. Exit code 0: nothing is wrong; 1: something does not work; 2: something should be
known; 64: the configuration cannot be used.

Examples:
  talaria doctor
  talaria doctor --config /etc/talaria.toml --output json")]
pub(crate) struct Doctor {
    /// The configuration file [default: talaria.toml in the working directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria send`
#[derive(Debug, Args)]
#[command(after_help = "\
The reply's text goes to standard output, state and ids go to standard error; with --stream --output json every
event is one line of JSON. When the agent asks, the person at the terminal answers. Ctrl-C cancels the task where
its id is known; a second one stops waiting.

Exit code 0: the agent answered; 1: it failed, refused, or could not be reached; 64: the command line cannot be
used; 130: ended by Ctrl-C.

Examples:
  talaria send http://127.0.0.1:8000 'hello'
  talaria send http://127.0.0.1:8000 'hello' --stream                     word by word
  talaria send http://127.0.0.1:8000 'and then?' --context 0190d5a0-…     the conversation goes on
  git diff | talaria send https://agents.example.com - --token-env AGENT_TOKEN
  talaria send http://127.0.0.1:8000 'hello' --output json                the whole result")]
pub(crate) struct Send {
    /// The agent's address: where its card is found under /.well-known/agent-card.json
    pub(crate) url: String,
    /// The message; `-` reads it from standard input (at most 1 MiB)
    pub(crate) text: String,
    /// Speak this version of A2A [default: the newest that the agent offers]
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) protocol: Option<Protocol>,
    /// Go on with this conversation: the context id of an earlier reply
    #[arg(long, value_name = "ID")]
    pub(crate) context: Option<String>,
    /// Go on with this task: the task id of a reply that asked for more
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// The environment variable that holds the token to send along
    #[arg(long, value_name = "NAME")]
    pub(crate) token_env: Option<String>,
    /// How long to wait for the reply
    #[arg(long, value_name = "TIME", default_value_t = Period::secs(600))]
    pub(crate) timeout: Period,
    /// Print the reply as it comes, and on standard error what the agent does meanwhile
    #[arg(long)]
    pub(crate) stream: bool,
}

/// `talaria route`
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Say which executor would take a message, and why each rule fits it or does not.
    Explain(Explain),
}

/// `talaria route explain`
#[derive(Debug, Args)]
#[command(after_help = "\
Reads the configuration, loads nothing and calls nobody. A rule with a weight takes a share of the conversations;
with --context it is known whether it takes this one.

Exit code 0: an executor would take it; 1: the message would be refused; 64: the configuration cannot be used.

Examples:
  talaria route explain --skill papers --principal platform
  talaria route explain --tenant acme --context 0190d5a0-… --output json
  talaria route explain '{\"message\":{\"contextId\":\"c\",\"metadata\":{\"tier\":\"gold\"}}}'")]
pub(crate) struct Explain {
    /// The message: text, or the JSON of a message or a request, whose metadata, tenant and context count
    pub(crate) text: Option<String>,
    /// The tenant of the request
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// The caller: the name of its token [default: nobody in particular]
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Option<String>,
    /// The skill that the message names
    #[arg(long, value_name = "ID")]
    pub(crate) skill: Option<String>,
    /// The model that the message asks for
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Other metadata of the message: KEY=VALUE, where VALUE is JSON, or else a text; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = metadata)]
    pub(crate) metadata: Vec<(String, serde_json::Value)>,
    /// The conversation: its context id
    #[arg(long, value_name = "ID")]
    pub(crate) context: Option<talaria_turns::ContextId>,
    /// The configuration file [default: talaria.toml in the working directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria workspace`
#[derive(Debug, Subcommand)]
pub(crate) enum Workspace {
    /// Print the system prompt as the next turn gets it, and where every part of it is from.
    Prompt(Prompt),
}

/// `talaria workspace prompt`
#[derive(Debug, Args)]
#[command(after_help = "\
From the files of the workspace alone; what the platform adds (instructions, peers, what the parent shares) comes on top.
Exit code 0: printed; 1: this is no workspace; 64: its configuration cannot be used.

Example:
  WORKSPACE_ID=ws-1 WORKSPACE_CONFIG_PATH=/configs talaria workspace prompt --output json")]
pub(crate) struct Prompt {
    /// The configuration file [default: talaria.toml in the working directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `KEY=VALUE`
fn metadata(text: &str) -> Result<(String, serde_json::Value), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// A version of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    #[value(name = "0.3")]
    V0_3,
    #[value(name = "1.0")]
    V1_0,
}

// === impl Cli ===

impl Cli {
    /// Reads the process's arguments. Help, version and mistakes are printed here; what is left is the exit code.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| {
            // To standard output for help, to standard error for mistakes; a reader that went away is no failure.
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

impl Send {
    /// The session's options, free of the command line parser's types.
    pub(crate) fn options(&self, format: Format) -> SendOptions {
        SendOptions {
            url: self.url.clone(),
            text: self.text.clone(),
            protocol: self.protocol.map(|protocol| match protocol {
                Protocol::V0_3 => talaria_client::Protocol::V0_3,
                Protocol::V1_0 => talaria_client::Protocol::V1_0,
            }),
            context: self.context.clone(),
            task: self.task.clone(),
            token_env: self.token_env.clone(),
            timeout: self.timeout.get(),
            stream: self.stream,
            format: match format {
                Format::Text => send::Format::Text,
                Format::Json => send::Format::Json,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

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
    fn mistakes_are_told() {
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
            ("doctor", "talaria doctor --help"),
            ("workspace", "talaria workspace --help"),
            ("workspace-prompt", "talaria workspace prompt --help"),
        ] {
            let help = parse(arguments).expect_err("help is no command").to_string();
            insta::assert_snapshot!(format!("help-{name}"), help);
        }
    }
}
