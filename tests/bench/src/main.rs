//! `cargo xtask bench`: the cost of the sandbox, compared with a native baseline in the same run.
//!
//! One run prints one table. Compare ratios, not the numbers of two runs or two machines. The load generator and the
//! upstream run in this process; the bridge and the baseline are processes of their own and are measured alternately.
//! `docs/benchmarks.md` explains the targets.
//!
//! The measured loops use bare connections (`http1`, `stream`), so that the load generator stays as cheap as it can be.
//! `talaria-client` is used only for set-up and checks outside of them.
#![forbid(unsafe_code)]

mod against;
mod baseline;
mod callback;
mod callback_baseline;
mod connections;
mod durable;
mod first;
mod gateway;
mod hostile;
mod http1;
mod inside;
mod lists;
mod load;
mod mark;
mod peers;
mod plugin;
mod process;
mod scripted;
mod slow;
mod spin;
mod start;
mod stream;
mod streams;
mod swap;
mod table;
mod telemetry;
mod usage;
mod waiting;

use std::fmt::Display;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::against::Against;
use crate::peers::Installed;
use crate::process::Bridge;
use crate::table::{Row, Table};

/// Measures the bridge against a native baseline and prints one table.
#[derive(Debug, Parser)]
struct Cli {
    /// How the table is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    /// The bridge's binary [default: `talaria` beside this one]
    #[arg(long, value_name = "FILE")]
    talaria: Option<PathBuf>,
    /// Measure this only; may be given more than once.
    #[arg(long, value_enum, value_name = "WHAT")]
    only: Vec<What>,
    /// How many turns wait for their callbacks.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    turns: usize,
    /// Compare with this binary of the bridge, in alternating rounds.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The benchmark of the other tree, for the parts that measure inside it.
    #[arg(long, value_name = "FILE", requires = "against")]
    against_bench: Option<PathBuf>,
    /// How often both are measured.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "against")]
    rounds: usize,
    #[command(flatten)]
    installed: Installed,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// A measurement that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A turn without a network, the memory of a waiting one, and the load of a component.
    Inside,
    /// Executors of operators, in Rust, Python and JavaScript: loads from the cache, and turns.
    Scripted,
    /// The start with a warm cache.
    Start,
    /// Resident memory, idle and with waiting turns.
    Memory,
    /// Throughput and latency against the baseline.
    Load,
    /// The cost of a turn with few and with many connections.
    Connections,
    /// Throughput with SQLite against the store in memory and the baseline.
    Durable,
    /// Lists of tasks in a large store.
    Lists,
    /// Time to the first event of a stream, against the upstream's own.
    FirstEvent,
    /// A thousand open streams: memory of a silent one, lateness of events.
    Streams,
    /// Turns beside readers that hang.
    SlowReaders,
    /// Turns while their executor is swapped.
    Swap,
    /// A round trip through a plugin that answers by callback, against the baseline.
    Callback,
    /// Resident memory of turns that wait for their callbacks.
    WaitingCallbacks,
    /// Turns beside guests that attack, in this process.
    Hostile,
    /// Turns through the bridge beside guests that spin.
    Spin,
    /// Throughput with traces against without.
    Telemetry,
    /// A2A's Python SDK and LiteLLM's proxy in front of the same upstream; only if it is named.
    Peers,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run as the baseline; the benchmark starts itself in this way.
    #[command(hide = true)]
    Baseline {
        /// The address to listen on.
        listen: SocketAddr,
        /// The upstream's address.
        gateway: SocketAddr,
    },
    /// Run as the baseline that is answered by callback.
    #[command(hide = true)]
    CallbackBaseline {
        /// The address to listen on.
        listen: SocketAddr,
        /// The plugin's address.
        plugin: SocketAddr,
    },
}

fn main() -> Result<()> {
    let mut cli = Cli::parse();
    process::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command.take() {
        Some(Command::Baseline { listen, gateway }) => runtime.block_on(baseline::serve(listen, gateway)),
        Some(Command::CallbackBaseline { listen, plugin }) => {
            runtime.block_on(callback_baseline::serve(listen, plugin))
        }
        None => {
            let talaria = cli.talaria.take().map_or_else(beside, Ok)?;
            if let Some(other) = &cli.against {
                let against = Against {
                    talaria: &talaria,
                    other,
                    other_bench: cli.against_bench.as_deref(),
                    rounds: cli.rounds,
                    turns: cli.turns,
                };
                return print(&against.measure(&What::selected(&cli.only))?, cli.output);
            }
            let mut table = Table::new();
            let measured = runtime.block_on(measure(talaria, &cli, &mut table));
            print(&table, cli.output)?;
            // The rows before a failure are printed too.
            measured
        }
    }
}

fn print(results: &(impl Display + Serialize), format: Format) -> Result<()> {
    let text = match format {
        Format::Text => results.to_string(),
        Format::Json => serde_json::to_string_pretty(results)? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Measures one thing after the other, so that nothing else runs meanwhile.
async fn measure(talaria: PathBuf, cli: &Cli, table: &mut Table) -> Result<()> {
    let bridge = Bridge::new(talaria)?;
    for what in What::selected(&cli.only) {
        table.extend(what.measure(&bridge, cli).await?);
    }
    Ok(())
}

fn beside() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let talaria = here.with_file_name("talaria");
    anyhow::ensure!(talaria.is_file(), "there is no {}; `cargo xtask bench` builds it", talaria.display());
    Ok(talaria)
}

// === impl What ===

impl What {
    /// The parts to measure: those that were named, or all that need no installation.
    fn selected(only: &[Self]) -> Vec<Self> {
        let is_selected = |what: &&Self| match only {
            [] => **what != Self::Peers,
            only => only.contains(what),
        };
        Self::value_variants().iter().filter(is_selected).copied().collect()
    }

    /// Whether the part measures in this process, so that the bridge's binary does not matter.
    fn is_inside(self) -> bool {
        matches!(self, Self::Inside | Self::Scripted | Self::Hostile)
    }

    async fn measure(self, bridge: &Bridge, cli: &Cli) -> Result<Vec<Row>> {
        if let Some(name) = self.to_possible_value() {
            eprintln!("measuring: {}", name.get_help().unwrap_or_default());
        }
        Ok(match self {
            Self::Inside => {
                let [alone, together] = inside::turns().await?;
                vec![alone, together, inside::waiting().await?, inside::load().await?]
            }
            Self::Scripted => {
                let mut rows = scripted::loads().await?;
                rows.extend(scripted::turns().await?);
                rows
            }
            Self::Start => vec![start::ready(bridge).await?],
            Self::Memory => waiting::memory(bridge).await?.into(),
            Self::Load => load::compare(bridge).await?,
            Self::Connections => connections::compare(bridge).await?,
            Self::Durable => durable::compare(bridge).await?,
            Self::Lists => lists::pages(bridge).await?,
            Self::FirstEvent => vec![first::event(bridge).await?],
            Self::Streams => streams::open(bridge).await?,
            Self::SlowReaders => vec![slow::readers(bridge).await?],
            Self::Swap => vec![swap::under_load(bridge).await?],
            Self::Callback => vec![callback::round_trip(bridge).await?],
            Self::WaitingCallbacks => vec![callback::waiting(bridge, cli.turns).await?],
            Self::Hostile => hostile::beside().await?,
            Self::Spin => spin::beside(bridge).await?.into(),
            Self::Telemetry => telemetry::compare(bridge).await?,
            Self::Peers => peers::compare(bridge, &cli.installed).await?,
        })
    }
}
