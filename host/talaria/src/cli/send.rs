//! The command line of `talaria send`.

use clap::{Args, ValueEnum};
use talaria_client::send::{self, SendOptions};

use crate::config::Period;
use crate::output::Format;

/// `talaria send`
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the text of the reply to standard output, and state and ids to standard error. With --stream --output json,
every event is one line of JSON. If the agent asks a question, you can answer it at the terminal. Ctrl-C cancels the
task, if its id is known; a second Ctrl-C stops waiting.

Exit code 0: the agent replied; 1: it failed, rejected the message, or could not be reached; 64: the command line
cannot be used; 130: ended by Ctrl-C.

Examples:
  talaria send http://127.0.0.1:8000 'hello'
  talaria send http://127.0.0.1:8000 'hello' --stream                     word by word
  talaria send http://127.0.0.1:8000 'and then?' --context 0190d5a0-…     continues a context
  git diff | talaria send https://agents.example.com - --token-env AGENT_TOKEN
  talaria send http://127.0.0.1:8000 'hello' --output json                the whole result")]
pub(crate) struct Send {
    /// The agent's address, which serves its card at /.well-known/agent-card.json
    pub(crate) url: String,
    /// The message; `-` reads it from standard input (at most 1 MiB)
    pub(crate) text: String,
    /// The version of A2A to use [default: the newest that the agent offers]
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) protocol: Option<Protocol>,
    /// Continue this context: the context id of an earlier reply
    #[arg(long, value_name = "ID")]
    pub(crate) context: Option<String>,
    /// Continue this task: the task id of a reply that asked for input
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// The environment variable that holds the bearer token
    #[arg(long, value_name = "NAME")]
    pub(crate) token_env: Option<String>,
    /// How long to wait for the reply
    #[arg(long, value_name = "TIME", default_value_t = Period::secs(600))]
    pub(crate) timeout: Period,
    /// Print the reply as it arrives, and progress on standard error
    #[arg(long)]
    pub(crate) stream: bool,
}

/// A version of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    #[value(name = "0.3")]
    V0_3,
    #[value(name = "1.0")]
    V1_0,
}

// === impl Send ===

impl Send {
    /// Returns the options of the client, without types of the command line parser.
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
