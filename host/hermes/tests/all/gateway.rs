//! Supervision of the gateway, with a fake gateway whose behaviour is controlled by files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::ExposeSecret as _;
use talaria_egress::Egress;
use talaria_fakes::{free_port, soon};
use talaria_hermes::gateway::{
    Config, Home, HostSecrets, Launch, Passed, Plugin, Settings, Supervisor, User, is_healthy,
};
use talaria_turns::Workspace;
use tokio_util::sync::CancellationToken;

/// A gateway that serves `/health` on the port in its `.env`, unless a file makes it fail.
const FAKE: &str = r#"
import http.server, json, os, signal, sys, time
home = os.environ["HERMES_HOME"]
with open(os.path.join(home, "starts"), "a") as starts: starts.write(f"{os.getpid()}\n")
with open(os.path.join(home, "whoami"), "w") as whoami: json.dump({
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()], "groups": os.getgroups(),
    "variables": [os.environ.get(name) for name in ("HOME", "USER", "LOGNAME")]}, whoami)
def says(name): return os.path.exists(os.path.join(home, name))
if says("fail"):
    print(open(os.path.join(home, "fail")).read(), flush=True)
    sys.exit(3)
if says("hang"): time.sleep(600)
env = dict(line.strip().split("=", 1) for line in open(os.path.join(home, ".env")) if "=" in line)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *_): pass
http.server.HTTPServer.allow_reuse_address = True
def stop(*_):
    with open(os.path.join(home, "stopped"), "w") as stopped: stopped.write("in order")
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if says("stubborn") else stop)
http.server.HTTPServer(("127.0.0.1", int(env["API_SERVER_PORT"])), Handler).serve_forever()
"#;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn say(line: String) {
    SAID.lock().unwrap().push(line);
}

pub(crate) fn config(home: &Path, wait: Duration) -> Config {
    let script = home.join("fake.py");
    fs::write(&script, FAKE).unwrap();
    Config {
        launch: Launch {
            command: vec!["python3".into(), script.to_string_lossy().into_owned()],
            home: home.to_owned(),
            log: home.join("gateway.log"),
            user: None,
            env: Passed::default(),
        },
        settings: Settings {
            port: free_port(),
            key: "a-key-of-twenty-chars".into(),
            variables: vec![("OPENAI_API_KEY".into(), "sk-of-the-provider-1234".into())],
            model: None,
            provider: None,
            plugin: None,
            tools: None,
        },
        wait,
    }
}

fn starts(home: &Path) -> Vec<String> {
    fs::read_to_string(home.join("starts")).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn signal(name: &str, id: &str) {
    assert!(Command::new("kill").args([name, id]).status().unwrap().success());
}

async fn healthy(port: u16, wanted: bool) {
    let egress = Egress::new(talaria_egress::Config::default());
    let url = format!("http://127.0.0.1:{port}/health");
    soon("the gateway's health", async {
        while is_healthy(&egress, &url).await != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

const PATIENT: Duration = talaria_fakes::PATIENCE;

#[tokio::test]
async fn starts_restarts_and_stops_the_gateway() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path(), PATIENT);
    let port = config.settings.port;
    let mut supervisor = Supervisor::new(config, None, say);
    assert!(supervisor.up().await, "{}", fs::read_to_string(home.path().join("gateway.log")).unwrap());
    assert_eq!(Home::new(home.path(), None).key().unwrap().expose_secret(), "a-key-of-twenty-chars");
    assert!(home.path().join(".clean_shutdown").exists());
    let stop = CancellationToken::new();
    let running = supervisor.run(stop.clone());
    let driving = async {
        signal("-KILL", &starts(home.path())[0]);
        soon("it is started again", async {
            while starts(home.path()).len() < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        healthy(port, true).await;
        stop.cancel();
    };
    tokio::join!(running, driving);
    assert_eq!(fs::read_to_string(home.path().join("stopped")).unwrap(), "in order");
    healthy(port, false).await;
}

#[tokio::test]
async fn explains_a_failed_start_and_keeps_trying() {
    let home = tempfile::tempdir().unwrap();
    fs::write(
        home.path().join("fail"),
        "ERROR Refusing to start: API_SERVER_KEY=abcdefgh12345678 is a placeholder",
    )
    .unwrap();
    let config = config(home.path(), PATIENT);
    let port = config.settings.port;
    let mut supervisor = Supervisor::new(config, None, say);
    assert!(!supervisor.up().await);
    let said = SAID.lock().unwrap().join("\n");
    assert!(said.contains("likely cause: the API server does not take its key"), "{said}");
    assert!(
        said.contains("API_SERVER_KEY=[REDACTED:key] is a placeholder"),
        "its last output, without secrets: {said}"
    );
    // Once the cause is fixed, the gateway starts without further action.
    fs::remove_file(home.path().join("fail")).unwrap();
    let stop = CancellationToken::new();
    let driving = async {
        healthy(port, true).await;
        stop.cancel();
    };
    tokio::join!(supervisor.run(stop.clone()), driving);
}

#[tokio::test]
async fn gives_up_on_a_gateway_that_is_not_healthy_in_time() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("hang"), "").unwrap();
    let config = config(home.path(), Duration::from_millis(300));
    let mut supervisor = Supervisor::new(config, None, say);
    assert!(!supervisor.up().await);
    let note = fs::read_to_string(home.path().join(".talaria-gateway")).unwrap();
    let id = note.split(' ').next().unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    supervisor.run(stop).await;
    let nobody = Command::new("kill").args(["-0", id]).status().unwrap();
    assert!(!nobody.success(), "the process is stopped");
}

#[tokio::test]
async fn stops_the_gateway_of_an_earlier_process_first() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path(), PATIENT);
    let mut first = Supervisor::new(config.clone(), None, say);
    assert!(first.up().await);
    // A killed process does not run destructors.
    std::mem::forget(first);
    let mut second = Supervisor::new(config, None, say);
    assert!(second.up().await);
    assert_eq!(fs::read_to_string(home.path().join("stopped")).unwrap(), "in order");
    assert_eq!(starts(home.path()).len(), 2);
    let stop = CancellationToken::new();
    stop.cancel();
    second.run(stop).await;
}

#[tokio::test]
async fn changes_of_the_model_and_prompt_reach_the_gateway() {
    let home = tempfile::tempdir().unwrap();
    let workspace = Arc::new(Mutex::new(Workspace {
        model: Some("first".into()),
        system_prompt: Some("You are one.".into()),
        ..Workspace::default()
    }));
    let mut config = config(home.path(), PATIENT);
    // A program that serves, and records the arguments of `config set`.
    let script = home.path().join("hermes");
    let python = format!(
        "#!/bin/sh\n[ \"$1\" = config ] && echo \"$@\" > {0}/told && exit 0\nexec python3 {0}/fake.py\n",
        home.path().display()
    );
    fs::write(&script, python).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    config.launch.command = vec![script.to_string_lossy().into_owned(), "gateway".into()];
    config.settings.model = Some("first".into());
    config.settings.plugin = Some(Plugin {
        host: "127.0.0.1".into(),
        port: 8645,
        callback_url: "http://127.0.0.1:1/".into(),
        secret: None,
    });
    let current = Arc::clone(&workspace);
    let mut supervisor =
        Supervisor::new(config, Some(Arc::new(move || Arc::new(current.lock().unwrap().clone()))), say);
    assert!(supervisor.up().await);
    let soul = || fs::read_to_string(home.path().join("SOUL.md")).unwrap_or_default();
    assert_eq!(soul(), "You are one.");
    let stop = CancellationToken::new();
    let driving = async {
        let two = Workspace {
            model: Some("second".into()),
            system_prompt: Some("You are two.".into()),
            ..Workspace::default()
        };
        *workspace.lock().unwrap() = two;
        soon("the gateway gets the change", async {
            while soul() != "You are two." || !home.path().join("told").exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        stop.cancel();
    };
    tokio::join!(supervisor.run(stop.clone()), driving);
    assert_eq!(fs::read_to_string(home.path().join("told")).unwrap(), "config set model.default second\n");
}

#[tokio::test]
async fn a_missing_program_is_a_failed_start() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config(home.path(), PATIENT);
    config.launch.command = vec!["/no/such/hermes".into(), "gateway".into()];
    assert!(!Supervisor::new(config, None, say).up().await);
}

/// A user that exists on every machine and owns nothing.
pub(crate) const NOBODY: &str = "nobody";

/// The variable that is set when a test that runs as root runs itself again as [`NOBODY`].
const AGAIN: &str = "TALARIA_TEST_AS_NOBODY";

pub(crate) fn id_of(flag: &str) -> u32 {
    let output = Command::new("id").args([flag, NOBODY]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn runs_the_gateway_as_its_user_which_needs_root() {
    let home = tempfile::tempdir().unwrap();
    let is_root = home.path().metadata().unwrap().uid() == 0;
    assert!(!is_root || std::env::var_os(AGAIN).is_none());
    let mut config = config(home.path(), PATIENT);
    config.launch.user = Some(User::named(if is_root { NOBODY } else { "root" }).unwrap());
    let mut supervisor = Supervisor::new(config, None, say);
    if !is_root {
        assert!(!supervisor.up().await);
        let said = SAID.lock().unwrap().join("\n");
        assert!(said.contains("`gateway.user` \"root\", which needs root; run talaria as root"), "{said}");
        assert!(starts(home.path()).is_empty());
        return;
    }
    assert!(supervisor.up().await, "{}", fs::read_to_string(home.path().join("gateway.log")).unwrap());
    let (uid, gid) = (id_of("-u"), id_of("-g"));
    let whoami: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.path().join("whoami")).unwrap()).unwrap();
    assert_eq!(whoami["ids"], serde_json::json!([uid, uid, gid, gid]));
    assert_eq!(whoami["groups"], serde_json::json!([]), "none of root's groups");
    assert_eq!(whoami["variables"][0], User::named(NOBODY).unwrap().home().to_str().unwrap());
    assert_eq!((&whoami["variables"][1], &whoami["variables"][2]), (&NOBODY.into(), &NOBODY.into()));
    // The gateway is up, so its user can read `.env`, which has the port.
    for name in ["", ".env", ".clean_shutdown"] {
        let metadata = home.path().join(name).metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (uid, gid), "{name:?}");
        assert!(name.is_empty() || metadata.mode() & 0o777 == 0o600, "{name:?}");
    }
    let stop = CancellationToken::new();
    stop.cancel();
    supervisor.run(stop).await;
    assert_eq!(fs::read_to_string(home.path().join("stopped")).unwrap(), "in order");

    // Runs the other branch as a user that is not root, with a copy of this program that the user can read.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let name = "gateway::runs_the_gateway_as_its_user_which_needs_root";
    let mut again = Command::new(&program);
    again.args(["--exact", name, "--nocapture"]).env(AGAIN, "1").current_dir("/").uid(uid).gid(gid);
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn a_gateway_gets_no_variable_that_is_not_listed() {
    // The variable of every test; cargo sets others of this beginning too.
    const OURS: &str = "CARGO_PKG_NAME";
    assert!(std::env::var_os(OURS).is_some());
    for (list, goes) in [(vec![], false), (vec!["CARGO_PKG_*".to_owned()], true)] {
        let home = tempfile::tempdir().unwrap();
        let mut config = config(home.path(), PATIENT);
        config.launch.env = Passed::read(&list, HostSecrets::default()).unwrap();
        let passed = config.launch.env.clone();
        // A shim of Python would add variables of its own.
        config.launch.command = vec!["env".into()];
        assert!(!Supervisor::new(config, None, say).up().await, "it prints its environment and ends");
        let printed = fs::read_to_string(home.path().join("gateway.log")).unwrap();
        let names: Vec<_> = printed.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert_eq!(names.contains(&OURS), goes, "{names:?}");
        assert!(names.contains(&"PATH") && names.contains(&"HERMES_HOME"), "{names:?}");
        let unlisted: Vec<_> = names.iter().filter(|name| !passed.includes(name)).collect();
        assert_eq!(unlisted, Vec::<&&str>::new());
    }
}
