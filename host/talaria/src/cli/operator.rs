//! The command line of what asks a running host: `status`, `tasks` and `health`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The host that a command asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The address of the host's admin server [default: `admin.listen` of the configuration]
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,
    /// The environment variable that holds its token [default: `admin.token` of the configuration]
    #[arg(long, value_name = "NAME")]
    pub(crate) token_env: Option<String>,
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria status`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: the host is ready; 1: it is not, or no host answers; 64: the configuration cannot be used.

Examples:
  talaria status
  talaria status --admin http://10.0.0.7:8001 --token-env ADMIN_TOKEN --output json")]
pub(crate) struct Status {
    // A doc comment here would replace the command's own.
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria health`
#[derive(Debug, Args)]
#[command(after_help = "\
For the probes of a container, which needs no other program for them. Waits for at most 5 seconds.

Exit code 0: well; 1: not, or no host answers; 64: the configuration cannot be used.

Examples:
  talaria health             the process answers
  talaria health --ready     a turn would be accepted and could succeed")]
pub(crate) struct Health {
    /// Ask whether it is ready, not only whether it is alive
    #[arg(long)]
    pub(crate) ready: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria tasks`
#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// List the tasks of all callers, the newest status first.
    List(TasksList),
    /// Show one task: its conversation, and the timeline of its turns.
    Show(TasksShow),
    /// Cancel a task: stop its turn and the agent's work.
    Cancel(TasksCancel),
    /// Print what changes, until it is interrupted or, with a task, until that task has ended.
    Watch(TasksWatch),
}

/// Which tasks.
#[derive(Debug, Clone, Args)]
pub(crate) struct TaskFilter {
    /// Only tasks in this state: submitted, working, input-required, auth-required, completed, failed, canceled, rejected
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Only tasks of this executor
    #[arg(long, value_name = "NAME")]
    pub(crate) executor: Option<String>,
    /// Only tasks of this caller: the name of its token; `-` is callers without one
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) owner: Option<String>,
    /// Only tasks of this context
    #[arg(long, value_name = "ID")]
    pub(crate) context: Option<String>,
    /// Only tasks with this text at the beginning of the caller's last message, or with this id
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// Begin after this position, which the page before printed
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    pub(crate) after: Option<String>,
}

/// `talaria tasks list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talaria tasks list --state failed
  talaria tasks list --executor hermes-runs --search invoice --limit 10
  talaria tasks list --output json")]
pub(crate) struct TasksList {
    #[command(flatten)]
    pub(crate) filter: TaskFilter,
    /// The most tasks to print
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria tasks show`
#[derive(Debug, Args)]
#[command(after_help = "\
The timeline shows what the turn waited for: its queue, each call with its status and bytes, callbacks, tools. A call that
was denied is marked, with the line that would allow it. The host remembers the timelines of its last 2,000 turns.

Example:
  talaria tasks show 0190d5a0-…")]
pub(crate) struct TasksShow {
    /// The task
    pub(crate) task: String,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria tasks cancel`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0: cancelled; 1: it had ended already, or there is no such task.

Example:
  talaria tasks cancel 0190d5a0-…")]
pub(crate) struct TasksCancel {
    /// The task
    pub(crate) task: String,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `talaria tasks watch`
#[derive(Debug, Args)]
#[command(after_help = "\
With --output json, every change is one line of JSON.

Examples:
  talaria tasks watch
  talaria tasks watch 0190d5a0-… --output json")]
pub(crate) struct TasksWatch {
    /// Only this task, until it has ended
    pub(crate) task: Option<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}
