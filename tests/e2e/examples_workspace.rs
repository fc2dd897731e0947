//! The files in `examples/workspace`, as far as they can be tested without a container engine. The tests run the commands of the
//! containers, as their user if they have the permission, with the folders below a temporary one, other ports, and a fake
//! `hermes`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use talaria_client::{Delivery, Message, Protocol};
use talaria_fakes::{FakePlatform, free_port, soon};

use crate::bridge::{client, run, stderr, stdout, talaria};
use crate::gateway;

/// The port of the admin server, which the probes use.
const OPERATORS: &str = "127.0.0.1:8001";

/// A provider's key, as the operator sets it.
const KEY: (&str, &str) = ("OPENROUTER_API_KEY", "sk-or-of-the-tests");

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workspace").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(example(name)).unwrap()
}

fn yaml(name: &str) -> Vec<Value> {
    read(name)
        .split("\n---\n")
        .map(|text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect()
}

/// Returns the arguments of every command in the files that starts talaria.
fn commands() -> Vec<Vec<String>> {
    let containerfile = read("Containerfile");
    let entry = containerfile.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    let entry: Vec<String> = serde_json::from_str(entry).unwrap();
    let deployment =
        yaml("kubernetes.yaml").into_iter().find(|document| document["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["entrypoint.sh"]));
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    assert_eq!(entry[0], "entrypoint.sh");
    vec![entry[1..].to_vec(), args]
}

#[test]
fn the_configuration_is_valid_and_the_commands_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    for words in commands() {
        assert_eq!(words[0], "serve");
        let help = run(talaria(folder.path()).args(&words).arg("--help"));
        assert!(help.status.success(), "{words:?}: {}", stderr(&help));
    }
    // No upstream is running, so the executor is not ready, but the configuration is valid.
    let config = read("talaria.toml").replace("/configs", &folder.path().to_string_lossy());
    std::fs::write(folder.path().join("talaria.toml"), config).unwrap();
    let check = run(talaria(folder.path())
        .args(["check", "--output", "json"])
        .env("HERMES_API_BASE", "http://127.0.0.1:1/v1"));
    assert_eq!(check.status.code(), Some(1), "{}", stderr(&check));
    let report: Value = serde_json::from_str(&stdout(&check)).unwrap();
    assert_eq!(report["warnings"], serde_json::json!([]));
}

#[test]
fn the_files_agree_on_ports_volumes_and_timeouts() {
    let compose = &yaml("compose.yaml")[0];
    let service = &compose["services"]["workspace"];
    assert_eq!(service["ports"][0], "127.0.0.1:8000:8000");
    assert_eq!(service["volumes"][0], "configs:/configs");
    assert!(compose["volumes"].as_object().unwrap().contains_key("configs"));
    assert_eq!(service["build"]["dockerfile"], "examples/workspace/Containerfile");
    let documents = yaml("kubernetes.yaml");
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["PersistentVolumeClaim", "Service", "Deployment"]);
    let pod = &documents[2]["spec"]["template"]["spec"];
    assert_eq!(pod["terminationGracePeriodSeconds"], 40);
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/configs");
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], documents[0]["metadata"]["name"]);
    assert_eq!(documents[1]["spec"]["selector"], documents[2]["spec"]["template"]["metadata"]["labels"]);
    assert!(container["resources"]["limits"]["memory"].is_string());
    assert_eq!(
        (&container["ports"][0]["containerPort"], &documents[1]["spec"]["ports"][0]["port"]),
        (&8000.into(), &8000.into())
    );
    let containerfile = read("Containerfile");
    for line in ["USER agent", "VOLUME /configs", "EXPOSE 8000"] {
        assert!(containerfile.lines().any(|said| said == line), "{line}");
    }
    // The user is not root and owns the volume.
    let security = &pod["securityContext"];
    assert_eq!(security["runAsNonRoot"], true);
    assert_eq!(security["runAsUser"], security["fsGroup"]);
    assert!(containerfile.contains(&format!("useradd --create-home --uid {} agent", security["runAsUser"])));
    assert!(containerfile.contains("chown agent:agent /configs"));
    // The image installs the versions that are tested.
    let repository = example("../..");
    let of = |path: &str| fs::read_to_string(repository.join(path)).unwrap();
    let rust = of("Cargo.toml")
        .lines()
        .find_map(|line| Some(line.strip_prefix("rust-version = ")?.trim_matches('"').to_owned()))
        .unwrap();
    assert!(containerfile.contains(&format!("FROM rust:{rust}-slim")));
    let hermes = of("tests/hermes/requirements.txt")
        .lines()
        .find(|line| line.starts_with("hermes-agent"))
        .unwrap()
        .to_owned();
    assert!(containerfile.contains(&hermes), "{hermes}");
    for copied in containerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|line| !line.starts_with("--"))
    {
        assert!(repository.join(copied.split(' ').next().unwrap()).exists(), "{copied}");
    }
}

/// A container of one of the examples: its command, its variables and its probes.
struct Recipe {
    words: Vec<String>,
    variables: Vec<(String, String)>,
    /// Succeeds while the process is alive.
    alive: Vec<Vec<String>>,
    /// Succeeds while it can take turns.
    ready: Vec<Vec<String>>,
}

// === impl Recipe ===

impl Recipe {
    /// Reads how the compose file starts the image, with the operator's environment.
    fn compose(given: &[(&str, &str)]) -> Self {
        let service = &yaml("compose.yaml")[0]["services"]["workspace"];
        let filled = |text: &str| {
            // `${NAME:-default}` or `${NAME:?message}`.
            let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap();
            let (name, otherwise) = inner.split_once(':').unwrap();
            let given = given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            given.unwrap_or_else(|| otherwise.strip_prefix('-').expect(text).to_owned())
        };
        let environment = service["environment"].as_object().unwrap();
        let variables =
            environment.iter().map(|(name, value)| (name.clone(), filled(value.as_str().unwrap())));
        let mut check: Vec<String> = serde_json::from_value(service["healthcheck"]["test"].clone()).unwrap();
        assert_eq!(check.remove(0), "CMD");
        let [entry, _] = commands().try_into().unwrap();
        Self { words: entry, variables: variables.collect(), alive: vec![check], ready: Vec::new() }
    }

    /// Reads how Kubernetes starts the image, with the secret that the file's comment creates.
    fn kubernetes(given: &[(&str, &str)]) -> Self {
        let deployment = yaml("kubernetes.yaml").remove(2);
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let secret = container["envFrom"][0]["secretRef"]["name"].as_str().unwrap();
        assert!(
            read("kubernetes.yaml").contains(&format!("secret generic {secret} --from-literal={}=", KEY.0))
        );
        let mut variables = vec![(KEY.0.to_owned(), KEY.1.to_owned())];
        for variable in container["env"].as_array().unwrap() {
            let text = |key: &str| variable[key].as_str().unwrap().to_owned();
            let given = given.iter().find(|(name, _)| *name == variable["name"]);
            variables
                .push((text("name"), given.map_or_else(|| text("value"), |(_, value)| (*value).to_owned())));
        }
        let probe = |name: &str| serde_json::from_value(container[name]["exec"]["command"].clone()).unwrap();
        let [_, args] = commands().try_into().unwrap();
        Self {
            words: args,
            variables,
            alive: vec![probe("startupProbe"), probe("livenessProbe")],
            ready: vec![probe("readinessProbe")],
        }
    }
}

/// The folders of a container, below a temporary folder.
struct Root {
    folder: tempfile::TempDir,
    /// The user of the container, if the test may switch to it.
    user: Option<u32>,
}

// === impl Root ===

impl Root {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = (folder.path().metadata().unwrap().uid() == 0).then_some(1000);
        let root = Self { folder, user };
        fs::set_permissions(root.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for path in ["/usr/local/bin", "/etc/talaria", "/configs", "/home/agent"] {
            fs::create_dir_all(root.at(path)).unwrap();
        }
        for path in ["/configs", "/home/agent"] {
            chown(root.at(path), user, user).unwrap();
        }
        let (built, program) = (env!("CARGO_BIN_EXE_talaria"), root.at("/usr/local/bin/talaria"));
        fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
        let hermes = root.at("/usr/local/bin/hermes");
        fs::write(&hermes, gateway::SCRIPT).unwrap();
        fs::set_permissions(&hermes, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    /// Returns the example's configuration with these ports of the bridge, the admin server and the gateway.
    fn configure(&self, ports: Option<[u16; 3]>) {
        let mut config = read("talaria.toml").replace("/configs", &self.at("/configs").to_string_lossy());
        if let Some([a2a, admin, gateway]) = ports {
            config = config.replace("[gateway]", &format!("[gateway]\nport = {gateway}"));
            config +=
                &format!("[a2a]\nlisten = \"0.0.0.0:{a2a}\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n");
            config += "[executors]\nprobe_every = \"1s\"\n";
        }
        fs::write(self.at("/etc/talaria/talaria.toml"), config).unwrap();
    }

    /// Returns a command in the container.
    fn command(&self, words: &[String], variables: &[(String, String)]) -> Command {
        let mut command = talaria(&self.at("/home/agent"));
        let mut within = Command::new(self.at("/usr/local/bin/talaria"));
        for (name, value) in command.envs(variables.iter().cloned()).get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        let path = format!("{}:{}", self.at("/usr/local/bin").display(), std::env::var("PATH").unwrap());
        within.env("PATH", path).env("HOME", self.at("/home/agent")).env_remove("XDG_CACHE_HOME");
        within.env("WORKSPACE_CONFIG_PATH", self.at("/configs"));
        within.current_dir(self.at("/home/agent")).stdin(Stdio::null());
        within.args(words.iter().map(|word| match word.starts_with("/etc") {
            true => self.at(word).to_string_lossy().into_owned(),
            false => word.clone(),
        }));
        if let Some(user) = self.user {
            within.uid(user).gid(user);
        }
        within
    }
}

/// The process of a container. Its gateway ends with it, even if the test fails.
struct Container<'a>(Child, &'a Root);

impl Container<'_> {
    fn signal_gateway(&self, signal: &str) -> bool {
        let note = fs::read_to_string(self.1.at("/configs/.hermes/.talaria-gateway")).unwrap_or_default();
        let id = note.split(' ').next().filter(|id| !id.is_empty());
        id.is_some_and(|id| Command::new("kill").args([signal, id]).status().unwrap().success())
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        self.signal_gateway("-KILL");
    }
}

/// Whether a probe succeeds at the port that the test chose.
fn succeeds(probe: &[String], admin: u16) -> bool {
    let words: Vec<_> =
        probe.iter().map(|word| word.replace(OPERATORS, &format!("127.0.0.1:{admin}"))).collect();
    assert_ne!(words, probe, "it uses the admin server");
    let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    assert!(!stderr(&output).contains("SyntaxError"), "{}", stderr(&output));
    output.status.success()
}

async fn becomes(what: &str, wanted: bool, probes: &[Vec<String>], admin: u16) {
    soon(what, async {
        while probes.iter().any(|probe| succeeds(probe, admin) != wanted) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

async fn try_out(recipe: impl Fn(&[(&str, &str)]) -> Recipe) {
    let platform = FakePlatform::start().await;
    let recipe = recipe(&[("WORKSPACE_ID", "ws-1"), ("PLATFORM_URL", &platform.url()), KEY]);
    let root = Root::new();
    let ports = std::array::from_fn(|_| free_port());
    let [a2a, admin, _] = ports;
    root.configure(Some(ports));
    for probe in recipe.alive.iter().chain(&recipe.ready) {
        assert!(!succeeds(probe, admin), "nothing runs yet: {probe:?}");
    }

    let log = fs::File::create(root.at("/log")).unwrap();
    let mut command = root.command(&recipe.words, &recipe.variables);
    let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let mut container = Container(child, &root);
    becomes("it is alive", true, &recipe.alive, admin).await;
    becomes("it is ready", true, &recipe.ready, admin).await;
    platform.registered(1).await;
    let url = format!("http://127.0.0.1:{a2a}");
    let answer = client(&url, Protocol::V1_0).send(&Message::new("hello"), Delivery::Whole).await.unwrap();
    assert_eq!(answer.text(), gateway::ANSWER);
    // Everything that must survive is on the volume and belongs to the container's user.
    for name in [".auth_token", "talaria.db", ".hermes/.env", ".hermes/config.yaml"] {
        let metadata =
            root.at("/configs").join(name).metadata().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(root.user.is_none_or(|user| user == metadata.uid()), "{name}");
    }
    let env = fs::read_to_string(root.at("/configs/.hermes/.env")).unwrap();
    assert!(env.contains(&format!("{}={}", KEY.0, KEY.1)), "{env}");
    let config = fs::read_to_string(root.at("/configs/.hermes/config.yaml")).unwrap();
    assert!(config.contains("provider: openrouter"), "{config}");

    // Without its gateway it is alive but not ready: it is not restarted, and gets no turns.
    fs::write(root.at("/configs/.hermes/fail"), "").unwrap();
    assert!(container.signal_gateway("-KILL"));
    becomes("it is not ready", false, &recipe.ready, admin).await;
    assert!(recipe.alive.iter().all(|probe| succeeds(probe, admin)));

    let id = container.0.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    let ended = container.0.wait().unwrap();
    assert!(ended.success(), "{ended}: {}", fs::read_to_string(root.at("/log")).unwrap());
}

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn the_image_works_as_the_compose_file_starts_it() {
    try_out(Recipe::compose).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_works_as_kubernetes_starts_it() {
    try_out(Recipe::kubernetes).await;
}

#[test]
fn the_doctor_checks_the_ports_in_the_files() {
    let root = Root::new();
    root.configure(None);
    let words = "doctor --config /etc/talaria/talaria.toml";
    assert!(read("README.md").contains(&format!("`talaria {words}`")));
    let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
    let variables = [
        ("WORKSPACE_ID".to_owned(), "ws-1".to_owned()),
        ("PLATFORM_URL".into(), "http://127.0.0.1:1".into()),
    ];
    let text = stdout(&run(&mut root.command(&words, &variables)));
    for (name, at) in
        [("A2A port", "0.0.0.0:8000"), ("operator's port", OPERATORS), ("gateway", "127.0.0.1:8642")]
    {
        assert!(text.lines().any(|line| line.contains(name) && line.contains(at)), "{name} {at}: {text}");
    }
}

/// Runs the entry point with a `pip` and a `hermes` that answer as told, and a `talaria` that writes the gateway's files.
/// Returns whether it came to serve, and what it printed.
fn enter(config: &str, pip: i32, listed: &str, plugin: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let program = |name: &str, script: String| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let shown = home.display();
    program("pip", format!("exit {pip}"));
    program(
        "hermes",
        format!("case $1 in config) echo 'Config: {shown}/config.yaml';; mcp) echo '{listed}';; esac"),
    );
    let prepare = format!("mkdir -p {shown}; echo '{config}' > {shown}/config.yaml");
    program(
        "talaria",
        format!(
            "if [ -n \"${{MOLECULE_RUNTIME_PREPARE_ONLY:-}}\" ]; then {prepare}; else echo served $*; fi"
        ),
    );
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.arg(example("entrypoint.sh")).args(["serve", "--config", "x"]);
    command.env("PATH", path).env("HERMES_HOME", &home).env("MOLECULE_A2A_PLATFORM_ENABLED", plugin);
    let output = run(&mut command);
    (stdout(&output).contains("served serve --config x"), stderr(&output))
}

#[test]
fn the_entry_point_proves_the_image_before_it_serves() {
    let whole = "plugins: {enabled: [molecule_a2a]}";
    let tools = "mcp_servers: {molecule: {}}";
    for (config, pip, listed, plugin, expected) in [
        (whole, 0, "", "true", ""),
        ("model: x", 1, "", "false", ""),
        (tools, 0, "molecule enabled", "no", ""),
        (whole, 1, "", "true", "hermes-platform-molecule-a2a is not installed"),
        ("model: x", 0, "", "Yes", "does not enable molecule_a2a"),
        (tools, 0, "No MCP servers", "no", "does not list the MCP server molecule"),
    ] {
        let (served, said) = enter(config, pip, listed, plugin);
        assert_eq!(served, expected.is_empty(), "{config} {pip} {listed} {plugin}: {said}");
        assert!(said.contains(expected), "{said}");
    }
}
