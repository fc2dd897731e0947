//! Talaria carries an agent's turns: an A2A server whose transports are sandboxed WASI components.
#![forbid(unsafe_code)]

mod admin;
mod app;
mod check;
mod cli;
mod config;
mod demo;
mod doctor;
mod executors;
mod metered;
mod output;
mod push;
mod send;
mod tokens;
mod workspace;

use std::pin::pin;
use std::process::ExitCode;

use anyhow::Context as _;
use talaria_observe::logs;
use tokio::runtime::{Builder, Runtime};

use app::App;
use cli::{Check, Cli, Command, EXIT_USAGE, LogFormat, Send, Serve, Workspace};
use config::{Config, ConfigError, Overrides};
use executors::Executors;
use output::Format;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let ended = match &cli.command {
        Command::Serve(serve) => run_serve(serve, cli.output),
        Command::Check(check) => run_check(check, cli.output),
        Command::Doctor(doctor) => run_doctor(&Overrides::from(doctor), cli.output),
        Command::Send(send) => run_send(send, cli.output),
        Command::Workspace(Workspace::Prompt(prompt)) => run_prompt(&Overrides::from(prompt), cli.output),
    };
    ended.unwrap_or_else(|error| {
        if let Some(invalid) = error.downcast_ref::<ConfigError>() {
            output::note(format!("invalid configuration: {invalid}"));
            return ExitCode::from(EXIT_USAGE);
        }
        if let Some(invalid) = error.downcast_ref::<logs::InitError>() {
            output::note(format!("invalid command line: {invalid}"));
            return ExitCode::from(EXIT_USAGE);
        }
        output::note(format!("failed to start: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run_serve(serve: &Serve, format: Format) -> anyhow::Result<ExitCode> {
    let log_format = match serve.log.format {
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
    };
    logs::init(log_format, &serve.log.filter)?;
    let config = Config::load(&Overrides::from(serve), &env)?;
    runtime()?.block_on(async {
        let mut stop = pin!(stop_requested().context("cannot listen for signals")?);
        let app = tokio::select! {
            app = Box::pin(App::build(config, env, serve.demo)) => app?,
            // A gateway may take minutes to come up; nobody should have to wait for that to stop.
            () = &mut stop => return Ok(ExitCode::SUCCESS),
        };
        output::print(format, app.banner())?;
        app.run(stop).await;
        Ok(ExitCode::SUCCESS)
    })
}

fn run_check(check: &Check, format: Format) -> anyhow::Result<ExitCode> {
    let mut config = Config::load(&Overrides::from(check), &env)?;
    // A check leaves nothing behind, and shows the files as they are.
    config.state = None;
    let executors = runtime()?.block_on(Executors::load(&config, None, env, &output::note))?;
    let report = check::Report::new(&config, &executors.table());
    output::print(format, &report)?;
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_send(send: &Send, format: Format) -> anyhow::Result<ExitCode> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(send::run(send, format, &env)))
}

fn run_doctor(overrides: &Overrides, format: Format) -> anyhow::Result<ExitCode> {
    let config = Config::load(overrides, &env)?;
    let report = runtime()?.block_on(doctor::Report::new(&config, &env));
    output::print(format, &report)?;
    Ok(ExitCode::from(report.code()))
}

fn run_prompt(overrides: &Overrides, format: Format) -> anyhow::Result<ExitCode> {
    let config = Config::load(overrides, &env)?;
    output::print(format, &workspace::prompt::Report::new(&config)?)?;
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().context("no threads")
}

/// The environment is read here and nowhere else.
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Resolves at the first SIGTERM or SIGINT.
fn stop_requested() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
