//! Talaria: an A2A server that runs each executor as a sandboxed WASI component.
#![forbid(unsafe_code)]

mod admin;
mod app;
mod card;
mod check;
mod cli;
mod config;
mod console;
mod doctor;
mod executor;
mod journal;
mod metered;
mod operator;
mod output;
mod push;
mod store;
mod tokens;
mod tool_servers;
mod toolboxes;
mod traced;
mod turn_log;
mod workspace;

use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use talaria_engine::{Compiler, SessionKeys};
use talaria_executors::route::{Explanation, Query};
use talaria_executors::{Executors, Services, Table};
use talaria_hermes::SESSION_KEYS;
use talaria_listen::Workers;
use talaria_observe::logs;
use talaria_observe::metrics::Metrics;
use talaria_redact::Redactor;
use talaria_workbench::{Trial, TrialError, TrialOptions};
use tikv_jemallocator::Jemalloc;
use tokio::runtime::{Builder, Runtime};

use app::Bound;
use cli::{
    Check, Cli, Command, EXIT_USAGE, Executor, ExecutorNew, ExecutorTest, Explain, LogFormat, RouteCommand,
    Send, Serve, Store, Workspace,
};
use config::{Config, ConfigError, Overrides};
use operator::{RunningHost, executors, tasks};
use output::Format;
use tool_servers::ToolServers;

/// Of the allocators that are as fast for turns, the one that takes the least memory (docs/decisions/062).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // The engine starts this binary again to compile a component. Before anything else, which such a process must not do.
    if let Some(code) = talaria_engine::compile_if_child() {
        return code;
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    Redactor::process().learn_variables(std::env::vars_os());
    let ended = match &cli.command {
        Command::Serve(serve) => run_serve(serve, cli.output),
        Command::Check(check) => run_check(check, cli.output),
        Command::Doctor(doctor) => run_doctor(&Overrides::from(doctor), cli.output),
        Command::Executor(command) => run_executor(command, cli.output),
        Command::Route(RouteCommand::Explain(explain)) => run_explain(explain, cli.output),
        Command::Status(status) => run_status(status, cli.output),
        Command::Tasks(tasks) => run_tasks(tasks, cli.output),
        Command::Health(health) => run_health(health, cli.output),
        Command::Send(send) => run_send(send, cli.output),
        Command::Store(command) => run_store(command, cli.output),
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
        let what = if matches!(cli.command, Command::Serve(_)) { "failed to start" } else { "failed" };
        output::note(format!("{what}: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run_serve(serve: &Serve, format: Format) -> anyhow::Result<ExitCode> {
    let log_format = match serve.log.format {
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
    };
    let colours = env("NO_COLOR").is_none_or(|set| set.is_empty());
    logs::init(log_format, &serve.log.filter, colours)?;
    if log_format == logs::Format::Json {
        output::notes_are_events();
    }
    let config = Config::load(&Overrides::from(serve), &env)?;
    if config.prepare_only {
        return Ok(prepare(&config));
    }
    let runtime = runtime()?;
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let workers = Workers::start(cores, runtime.handle().clone()).context("cannot start a worker")?;
    let drained = runtime.block_on(async {
        let stop = stop_requested().context("cannot listen for signals")?;
        let bound = Bound::bind(config, workers.spread()).await?;
        let announce = |banner: &app::Banner| {
            banner.log_warnings();
            // A log of JSON is read line by line; the banner is in it, unless it was asked for as JSON of its own.
            if log_format == logs::Format::Json && format == Format::Text {
                banner.log();
                return Ok(());
            }
            output::print(format, banner)
        };
        bound.run(env, serve.demo, stop, announce).await
    });
    if drained? {
        workers.stop();
        return Ok(ExitCode::SUCCESS);
    }
    // Does not wait for threads that still block.
    runtime.shutdown_background();
    Ok(ExitCode::FAILURE)
}

/// Writes what the agent reads at its start, for `MOLECULE_RUNTIME_PREPARE_ONLY`: the plugins' texts and the gateway's files.
fn prepare(config: &Config) -> ExitCode {
    if let Some(workspace) = &config.workspace {
        workspace.assembly.install_plugins();
    }
    let problems = config.gateway.as_ref().map(talaria_hermes::gateway::Config::prepare).unwrap_or_default();
    for problem in &problems {
        output::note(format!("not prepared: {problem}"));
    }
    output::note("MOLECULE_RUNTIME_PREPARE_ONLY is set: files are written, nothing is served".to_owned());
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_check(check: &Check, format: Format) -> anyhow::Result<ExitCode> {
    let mut config = Config::load(&Overrides::from(check), &env)?;
    // A check stores no versions, and reports on the files as they are.
    config.executors.state = None;
    let report = check::Report::new(&config, &*load(&config, &runtime()?)?);
    output::print(format, &report)?;
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_explain(explain: &Explain, format: Format) -> anyhow::Result<ExitCode> {
    let config = Config::load(&Overrides::from(explain), &env)?;
    let explanation = Explanation::new(&config.executors, &Query::from(explain));
    output::print(format, &explanation)?;
    Ok(if explanation.is_taken() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_executor(command: &Executor, format: Format) -> anyhow::Result<ExitCode> {
    let file = match command {
        Executor::New(new) => return run_executor_new(new, format),
        Executor::Test(test) => return run_executor_test(test, format),
        Executor::List(list) => {
            if !list.offline {
                match listed(list, format) {
                    Ok(true) => return Ok(ExitCode::SUCCESS),
                    Ok(false) => {}
                    Err(error) if list.target.admin.is_some() || error.is::<ConfigError>() => {
                        return Err(error);
                    }
                    Err(error) => output::note(format!("{error:#}; these are the files")),
                }
            }
            &list.target.config
        }
        Executor::Status(_) | Executor::Reload(_) | Executor::Push(_) | Executor::Remove(_) => {
            return run_remote_executor(command, format);
        }
        Executor::Inspect(inspect) => &inspect.config,
        Executor::Rollback(rollback) => &rollback.config,
    };
    let mut config = Config::load(&Overrides::from(&Check { config: file.clone() }), &env)?;
    // These commands store no versions, and show the files as they are.
    config.executors.state = None;
    let runtime = runtime()?;
    if let Executor::Rollback(rollback) = command {
        return match runtime.block_on(executor::RolledBack::ask(&config, &rollback.name)) {
            Ok(rolled_back) => {
                output::print(format, &rolled_back)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                output::note(format!("not rolled back: {error:#}"));
                Ok(ExitCode::FAILURE)
            }
        };
    }
    let executors = load(&config, &runtime)?;
    if let Executor::Inspect(inspect) = command {
        let inspected = runtime.block_on(executor::Inspected::new(&config, &executors, &inspect.file))?;
        output::print(format, &inspected)?;
    } else {
        output::print(format, &executor::List::new(&executors))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the executors of the running host. Returns whether there is one.
fn listed(list: &cli::ExecutorList, format: Format) -> anyhow::Result<bool> {
    let host = RunningHost::of(&list.target, &env)?;
    current_thread()?.block_on(async {
        if list.target.admin.is_none() && !host.is_there().await {
            output::note(format!("no host answers at {}; these are the files", host.url()));
            return Ok(false);
        }
        output::print(format, &executors::Listed::ask(&host).await?)?;
        Ok(true)
    })
}

/// Asks the running host to show or to change an executor.
fn run_remote_executor(command: &Executor, format: Format) -> anyhow::Result<ExitCode> {
    let target = match command {
        Executor::Push(push) => &push.target,
        Executor::Status(named) | Executor::Reload(named) | Executor::Remove(named) => &named.target,
        _ => return Ok(ExitCode::from(EXIT_USAGE)),
    };
    let host = RunningHost::of(target, &env)?;
    current_thread()?.block_on(async {
        match command {
            Executor::Status(named) => {
                output::print(format, &executors::Shown::ask(&host, &named.name).await?)?;
            }
            Executor::Push(push) => {
                let (component, policy) = (push.component.as_deref(), push.policy.as_deref());
                let pushed = executors::Changed::push(&host, &push.name, component, policy).await?;
                output::print(format, &pushed)?;
            }
            Executor::Reload(named) => {
                output::print(format, &executors::Changed::reload(&host, &named.name).await?)?;
            }
            Executor::Remove(named) => {
                output::print(format, &executors::Changed::remove(&host, &named.name).await?)?;
            }
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn run_status(status: &cli::Status, format: Format) -> anyhow::Result<ExitCode> {
    let host = RunningHost::of(&status.target, &env)?;
    let status = current_thread()?.block_on(operator::status::Status::ask(&host))?;
    output::print(format, &status)?;
    Ok(if status.is_ready() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_health(health: &cli::Health, format: Format) -> anyhow::Result<ExitCode> {
    let host = RunningHost::of(&health.target, &env)?;
    let health = current_thread()?.block_on(operator::health::Health::ask(&host, health.ready))?;
    output::print(format, &health)?;
    Ok(if health.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_tasks(tasks: &cli::Tasks, format: Format) -> anyhow::Result<ExitCode> {
    let target = match tasks {
        cli::Tasks::List(list) => &list.target,
        cli::Tasks::Show(show) => &show.target,
        cli::Tasks::Cancel(cancel) => &cancel.target,
        cli::Tasks::Watch(watch) => &watch.target,
    };
    let host = RunningHost::of(target, &env)?;
    current_thread()?.block_on(async {
        match tasks {
            cli::Tasks::List(list) => {
                let listed = tasks::List::ask(&host, &list.filter, list.limit.into()).await?;
                output::print(format, &listed)?;
            }
            cli::Tasks::Show(show) => output::print(format, &tasks::Shown::ask(&host, &show.task).await?)?,
            cli::Tasks::Cancel(cancel) => {
                output::print(format, &tasks::Cancelled::ask(&host, &cancel.task).await?)?;
            }
            cli::Tasks::Watch(watch) => tasks::watch(&host, watch.task.as_deref(), format).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn current_thread() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

/// Loads the executors for a command that inspects them and does not serve.
fn load(config: &Config, runtime: &Runtime) -> anyhow::Result<Arc<Table>> {
    let servers = ToolServers::new(config, &Metrics::new(env!("CARGO_PKG_VERSION")))?;
    let services = Services {
        variables: config.variables(env),
        callbacks: None,
        workspaces: config.workspaces(),
        tools: toolboxes::offered(config, &servers),
        observer: Arc::new(()),
    };
    let executors = runtime.block_on(Executors::load(&config.executors, services, &output::note))?;
    Ok(executors.table())
}

fn run_send(send: &Send, format: Format) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::from(current_thread()?.block_on(talaria_client::send::run(&send.options(format), &env))))
}

fn run_executor_new(new: &ExecutorNew, format: Format) -> anyhow::Result<ExitCode> {
    match talaria_workbench::write_project(Path::new(""), &new.name, new.lang.into()) {
        Ok(project) => {
            output::print(format, &project)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            output::note(format!("cannot write ./{}: {error}", new.name));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn run_executor_test(test: &ExecutorTest, format: Format) -> anyhow::Result<ExitCode> {
    let passed = runtime()?.block_on(async {
        let mut trial = Trial::set_up(trial_options(test)).await.map_err(|error| match error {
            TrialError::Config(error) => error.into(),
            error => anyhow::Error::from(error),
        })?;
        if !test.learn {
            let report = trial.run().await;
            output::print(format, &report)?;
            return anyhow::Ok(report.passed);
        }
        let (grant, report) = talaria_workbench::learn(&mut trial).await;
        output::print(format, &grant)?;
        if !report.passed {
            output::note(format!("the grant was learnt from a test that failed:\n{report}"));
        }
        Ok(report.passed)
    })?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A trial whose calls the demo gateway answers if there is no cassette.
fn trial_options(test: &ExecutorTest) -> TrialOptions {
    TrialOptions {
        component: test.component.clone(),
        config: test.config.clone(),
        cassette: test.cassette.clone(),
        text: test.text.clone(),
        cache_dir: config::cache_dir(&env),
        compiler: Compiler::this_program(),
        session_keys: SessionKeys(SESSION_KEYS),
        responder: Arc::new(|request, bearer| {
            Box::pin(async move { talaria_hermes::demo::answer(request, &bearer).await })
        }),
        note: output::note,
    }
}

fn run_doctor(overrides: &Overrides, format: Format) -> anyhow::Result<ExitCode> {
    let config = Config::load(overrides, &env)?;
    let report = runtime()?.block_on(doctor::Report::new(&config, &env));
    output::print(format, &report)?;
    Ok(ExitCode::from(report.code()))
}

fn run_store(command: &Store, format: Format) -> anyhow::Result<ExitCode> {
    let config = Config::load(&Overrides::from(command), &env)?;
    match command {
        Store::Backup(backup) => {
            output::print(format, &store::Backup::write(&config, &backup.file, backup.force)?)?;
        }
        Store::Restore(restore) => {
            output::print(format, &store::Restore::replace(&config, &restore.file)?)?;
        }
        Store::Check(_) => {
            let checked = store::Check::read(&config)?;
            output::print(format, &checked)?;
            return Ok(if checked.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_prompt(overrides: &Overrides, format: Format) -> anyhow::Result<ExitCode> {
    let config = Config::load(overrides, &env)?;
    output::print(format, &workspace::prompt::Report::new(&config)?)?;
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().context("cannot start the runtime's threads")
}

/// Reads an environment variable. Nothing else in the process reads the environment.
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a function that returns at the next SIGTERM or SIGINT.
fn stop_requested() -> std::io::Result<impl AsyncFnMut()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
