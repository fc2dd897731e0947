//! What else one could run: the server of A2A's Python SDK and LiteLLM's proxy, in front of the same upstream.
//!
//! Both run as their authors document it, in one process, because each does. They do more than the baseline, as Talaria
//! does, and not the same: LiteLLM translates between providers, the SDK is a library for one's own agent. So the rows say
//! what a call costs with each of them, and not which is better. `cargo xtask bench --only peers` installs them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::gateway::Gateway;
use crate::http1::{Ask, KEY};
use crate::load::{Load, Rounds};
use crate::process::{Bridge, Server, program};
use crate::table::Row;

/// Where the peers are installed: the folders of their programs.
#[derive(Debug, clap::Args)]
pub(crate) struct Installed {
    /// The programs of the Python environment with a2a-sdk.
    #[arg(long, value_name = "DIR", hide = true)]
    a2a_sdk: Option<PathBuf>,
    /// The programs of the Python environment with LiteLLM.
    #[arg(long, value_name = "DIR", hide = true)]
    litellm: Option<PathBuf>,
}

/// A measured server.
struct Contender {
    names: [&'static str; 3],
    what: String,
    server: Server,
    busy: (Load, Rounds),
    calm: (Load, Rounds),
}

const BUSY: Load = Load { connections: 16, length: Duration::from_secs(2), pace: None, ask: Ask::Prompt };
const CALM: Load = Load { connections: 1, ..BUSY };
const ROUNDS: usize = 5;
/// LiteLLM imports for ten seconds, and for minutes on a busy machine.
const START: Duration = Duration::from_secs(300);
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/a2a_sdk.py");

pub(crate) async fn compare(bridge: &Bridge, installed: &Installed) -> Result<Vec<Row>> {
    const MISSING: &str = "the peers are not installed; run `cargo xtask bench --only peers`";
    let (sdk, litellm) = (installed.a2a_sdk.as_deref(), installed.litellm.as_deref());
    let (sdk, litellm) = (sdk.context(MISSING)?, litellm.context(MISSING)?);
    let gateway = Gateway::fast().await?;
    let mut native = bridge.start_baseline(gateway.address)?;
    native.ready().await.context("the baseline")?;
    let mut contenders = [
        Contender::talaria(bridge, &gateway).await?,
        Contender::a2a_sdk(bridge, &gateway, sdk).await?,
        Contender::litellm(bridge, &gateway, litellm).await?,
    ];
    for contender in &contenders {
        contender.busy.0.put_on(&contender.server).await?;
    }
    BUSY.put_on(&native).await?;
    let [mut busy, mut calm] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        busy.add(BUSY.put_on(&native).await?);
        calm.add(CALM.put_on(&native).await?);
        for contender in &mut contenders {
            for (load, rounds) in [&mut contender.busy, &mut contender.calm] {
                rounds.add(load.put_on(&contender.server).await?);
            }
        }
    }
    Ok(contenders.iter().flat_map(|contender| contender.rows(&busy, &calm)).collect())
}

/// The version of a Python package.
fn version(bin: &Path, package: &str) -> Result<String> {
    let script = format!("import importlib.metadata as m; print(m.version({package:?}))");
    let said = Command::new(bin.join("python")).args(["-c", &script]).output()?;
    ensure!(said.status.success(), "{package} is not installed: {}", String::from_utf8_lossy(&said.stderr));
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

// === impl Contender ===

impl Contender {
    async fn talaria(bridge: &Bridge, gateway: &Gateway) -> Result<Self> {
        let mut server = bridge.start(&gateway.base_url())?;
        server.ready().await.context("the bridge")?;
        let names = [
            "throughput of Talaria, of the baseline's",
            "added median latency of Talaria, 16 connections",
            "added median latency of Talaria, 1 connection",
        ];
        Ok(Self::new(names, "one process".into(), server, Ask::Prompt))
    }

    async fn a2a_sdk(bridge: &Bridge, gateway: &Gateway, bin: &Path) -> Result<Self> {
        let upstream = gateway.base_url();
        let mut server = bridge.start_peer("a2a-sdk", |address| {
            let mut command = program(bin.join("python"));
            command.arg(SERVER).arg(address.to_string()).arg(upstream);
            Ok(command)
        })?;
        server.ready_within(START, "/.well-known/agent-card.json").await.context("a2a-sdk's server")?;
        let names = [
            "throughput of a2a-sdk's server, of the baseline's",
            "added median latency of a2a-sdk's server, 16 connections",
            "added median latency of a2a-sdk's server, 1 connection",
        ];
        let (sdk, uvicorn) = (version(bin, "a2a-sdk")?, version(bin, "uvicorn")?);
        let what = format!("a2a-sdk {sdk} on uvicorn {uvicorn} with uvloop, one process, tasks in memory");
        Ok(Self::new(names, what, server, Ask::Prompt))
    }

    async fn litellm(bridge: &Bridge, gateway: &Gateway, bin: &Path) -> Result<Self> {
        let config = bridge.home().join("litellm.json");
        let model =
            json!({ "model": "openai/hermes-agent", "api_base": gateway.base_url(), "api_key": "none" });
        let models = json!({
            "model_list": [{ "model_name": "hermes-agent", "litellm_params": model }],
            "general_settings": { "master_key": KEY },
        });
        std::fs::write(&config, models.to_string())?;
        let mut server = bridge.start_peer("litellm", |address: SocketAddr| {
            let mut command = program(bin.join("litellm"));
            command.arg("--config").arg(&config).args(["--host", "127.0.0.1", "--num_workers", "1"]);
            command.args(["--port", &address.port().to_string()]);
            // Nothing is fetched or sent.
            command.envs([("LITELLM_LOCAL_MODEL_COST_MAP", "True"), ("LITELLM_TELEMETRY", "False")]);
            command.envs([("LITELLM_LOG", "ERROR"), ("NO_PROXY", "*")]);
            Ok(command)
        })?;
        server.ready_within(START, "/health/liveliness").await.context("LiteLLM's proxy")?;
        let names = [
            "throughput of LiteLLM's proxy, of the baseline's",
            "added median latency of LiteLLM's proxy, 16 connections",
            "added median latency of LiteLLM's proxy, 1 connection",
        ];
        let what = format!("LiteLLM {}, one worker, one key, no database", version(bin, "litellm")?);
        Ok(Self::new(names, what, server, Ask::Completion))
    }

    fn new(names: [&'static str; 3], what: String, server: Server, ask: Ask) -> Self {
        let [busy, calm] = [BUSY, CALM].map(|load| (Load { ask, ..load }, Rounds::default()));
        Self { names, what, server, busy, calm }
    }

    fn rows(&self, busy: &Rounds, calm: &Rounds) -> [Row; 3] {
        let Self { names: [rate, saturated, single], what, busy: (_, own), calm: (_, own_calm), .. } = self;
        let ratio = Row::plain(rate, own.throughput() / busy.throughput(), "").more_is_better();
        [
            ratio.note(format!(
                "{:.0} to {:.0} requests/s at 16 connections; {what}; {:.0} µs of processor time a request, {:.2} cores",
                own.throughput(),
                busy.throughput(),
                own.cpu(),
                own.cores(),
            )),
            Row::plain(saturated, own.latency() - busy.latency(), "ms").note(format!(
                "{:.2} to {:.2} ms, saturated",
                own.latency(),
                busy.latency()
            )),
            Row::plain(single, own_calm.latency() - calm.latency(), "ms").note(format!(
                "{:.2} to {:.2} ms",
                own_calm.latency(),
                calm.latency()
            )),
        ]
    }
}
