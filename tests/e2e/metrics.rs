//! The metrics of the real binary, and a real Prometheus that reads them: Debian's package, which `cargo xtask prepare`
//! unpacks into the target folder. The tests fail without it.
//!
//! What `examples/observe` says is held to the truth: every name and label in an expression of the dashboard and of the rules
//! is in `docs/metrics.md` and in the real text, every expression is evaluated, and every alert fires when it should.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use regex::Regex;
use serde_json::Value;
use talaria_client::{Delivery, Message};
use talaria_fakes::{guest, soon};

use crate::bridge::{Bridge, Start, request};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0";

/// An executor that crashes, calls what it may not, and remembers.
const CONFIG: &str = r#"
[executor.probe]
component = "probe.wasm"
grant = { egress = ["GET http://127.0.0.1:9/*"] }

[[route]]
name = "probes"
metadata = { probe = "yes" }
executor = "probe"

[callback]
listen = "127.0.0.1:0"
"#;

fn program(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_talaria")).ancestors().nth(2).expect("a target folder");
    let program = target.join("prometheus/usr/bin").join(name);
    assert!(program.is_file(), "Prometheus is not installed; run `cargo xtask prepare`");
    program
}

fn observe() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/observe")
}

/// Runs promtool; an error is what it says.
fn promtool(args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(program("promtool"))
        .args(args)
        .current_dir(observe())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writing.join();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// The text of the metrics, and its media type.
async fn scrape(bridge: &Bridge, accept: &str) -> (String, String) {
    let url = bridge.banner["admin"].as_str().expect("an address");
    let response = request(url, "GET", "/metrics", &[("accept", accept)], "").await;
    assert_eq!(response.status, 200);
    let media = response.headers.iter().find(|(name, _)| name == "content-type").expect("a media type");
    (media.1.clone(), String::from_utf8(response.body.to_vec()).unwrap())
}

/// A bridge in which much has happened.
async fn busy(folder: &Path) -> Bridge {
    std::fs::write(folder.join("probe.wasm"), guest("probe")).unwrap();
    let bridge = Start::new(folder).config(CONFIG).arg("--demo").up();
    bridge.say("hello").await;
    bridge.say("fail please").await;
    for text in [
        "echo me",
        "fetch http://127.0.0.1:9/",
        "fetch http://127.0.0.1:10/",
        "panic now",
        "fail so",
        "ask-back what?",
    ] {
        bridge.send(Message::new(text).with("probe", "yes"), Delivery::Whole).await;
    }
    bridge.call("GetTask", serde_json::json!({ "id": "no-such-task" })).await;
    bridge.call_v03("tasks/get", serde_json::json!({ "id": "no-such-task" })).await;
    bridge.request("GET", "/.well-known/agent-card.json", &[], "").await;
    bridge.request("GET", "/no/such/path", &[], "").await;
    bridge
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_accepts_the_text_and_numbers_are_as_they_happened() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = busy(folder.path()).await;
    // The end of a turn is counted once it is in the store, which its answer does not wait for.
    let text = soon("the turns are counted", async {
        loop {
            let (media, text) = scrape(&bridge, "*/*").await;
            assert_eq!(media, "text/plain; version=0.0.4; charset=utf-8");
            if text.contains("talaria_turn_lane_wait_seconds_count{executor=\"probe\"} 6\n") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let said = promtool(&["check", "metrics"], &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(said.trim(), "", "promtool has nothing to find fault with");
    let wrong = text.replace("# HELP talaria_streams_open", "# NOTE talaria_streams_open");
    assert!(promtool(&["check", "metrics"], &wrong).is_err(), "promtool would find fault");
    for line in [
        r#"talaria_turns_started_total{executor="probe"} 6"#,
        r#"talaria_turns_ended_total{executor="probe",state="completed"} 3"#,
        r#"talaria_turns_ended_total{executor="probe",state="input-required"} 1"#,
        r#"talaria_turns_ended_total{executor="probe",state="failed"} 2"#,
        r#"talaria_turn_failures_total{executor="probe",kind="upstream"} 1"#,
        r#"talaria_turn_failures_total{executor="probe",kind="internal"} 1"#,
        r#"talaria_turn_guest_seconds_count{executor="probe"} 6"#,
        r#"talaria_turn_instance_wait_seconds_count{executor="probe"} 6"#,
        r#"talaria_egress_calls_total{executor="probe",answer="error"} 1"#,
        r#"talaria_egress_calls_total{executor="probe",answer="denied"} 1"#,
        r#"talaria_egress_calls_total{executor="chat-completions",answer="2xx"} 2"#,
        r#"talaria_denials_total{executor="probe",kind="undeclared"} 1"#,
        r#"talaria_denials_total{executor="probe",kind="secret"} 0"#,
        r#"talaria_executor_faults_total{executor="probe",kind="trap"} 1"#,
        r#"talaria_executor_faults_total{executor="probe",kind="cpu"} 0"#,
        r#"talaria_executor_changes_total{executor="probe",result="loaded"} 1"#,
        r#"talaria_executor_changes_total{executor="chat-completions",result="loaded"} 1"#,
        r#"talaria_executor_instances_in_use{executor="probe"} 0"#,
        r#"talaria_messages_routed_total{route="probes"} 6"#,
        r#"talaria_requests_total{operation="GetTask",version="1.0",status="rpc-error"} 1"#,
        r#"talaria_requests_total{operation="GetTask",version="0.3",status="rpc-error"} 1"#,
        r#"talaria_requests_total{operation="card",version="none",status="2xx"} 1"#,
        r#"talaria_requests_total{operation="other",version="none",status="4xx"} 1"#,
        r#"talaria_store_failures_total{operation="append"} 0"#,
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
    }
    let number = |name: &str| -> f64 {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    };
    assert!(number("process_resident_memory_bytes") > 1e6 && number("process_threads") > 1.0);
    assert!(number("process_cpu_seconds_total") > 0.0 && number("process_open_fds") > 3.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..600.0).contains(&(now - number("process_start_time_seconds"))));
    // The store in memory is not measured, and has a limit all the same.
    assert!(number("talaria_store_limit_bytes") > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_a_file_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let store = "[store]\nurl = \"sqlite:tasks.db\"\n";
    let bridge = Start::new(folder.path()).config(store).arg("--demo").up();
    bridge.say("hello").await;
    let (media, text) = scrape(&bridge, OPEN_METRICS).await;
    assert_eq!(media, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    for operation in ["create", "append"] {
        let name = format!("talaria_store_operation_seconds_count{{operation=\"{operation}\"}} ");
        let count =
            text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{text}"));
        assert!(count.parse::<u64>().unwrap() > 0, "{count}");
    }
    assert!(text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn the_rules_are_valid_and_every_alert_fires_when_it_should() {
    promtool(&["check", "rules", "alerts.yml"], "").unwrap_or_else(|error| panic!("{error}"));
    promtool(&["check", "config", "prometheus.yml"], "").unwrap_or_else(|error| panic!("{error}"));
    promtool(&["test", "rules", "alerts_test.yml"], "").unwrap_or_else(|error| panic!("{error}"));
    let tests = std::fs::read_to_string(observe().join("alerts_test.yml")).unwrap();
    for rule in rules() {
        let alert = rule["alert"].as_str().unwrap();
        for what in ["fires", "is quiet"] {
            assert!(tests.contains(&format!("name: {alert} {what}\n")), "no test says when {alert} {what}");
        }
        for text in ["summary", "description", "runbook"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| text.len() > 8), "{alert}: {text}");
        }
    }
}

fn rules() -> Vec<Value> {
    let text = std::fs::read_to_string(observe().join("alerts.yml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    file["groups"][0]["rules"].as_array().unwrap().clone()
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(observe().join("dashboard.json")).unwrap()).unwrap()
}

/// Every value of a member, wherever it is.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name).and_then(Value::as_str));
            object.values().for_each(|value| members(value, name, found));
        }
        Value::Array(array) => array.iter().for_each(|value| members(value, name, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_explains_itself_and_needs_no_plugin() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    for panel in panels {
        let kind = panel["type"].as_str().unwrap();
        assert!(["row", "stat", "timeseries"].contains(&kind), "{kind} is not part of Grafana");
        if kind == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with(['.', '?'])), "{panel}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        let grid = &panel["gridPos"];
        assert!(grid["x"].as_u64().unwrap() + grid["w"].as_u64().unwrap() <= 24, "{panel}");
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance", "executor"]);
}

/// The expressions of the dashboard and of the rules, with what a user would choose filled in.
fn expressions() -> Vec<String> {
    let (dashboard, rules) = (dashboard(), rules());
    let mut found = Vec::new();
    members(&dashboard, "expr", &mut found);
    assert!(found.len() > 40, "the dashboard has {} expressions", found.len());
    found.extend(rules.iter().map(|rule| rule["expr"].as_str().unwrap()));
    let fill_in = |text: &str| {
        text.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$executor", ".*")
    };
    found.into_iter().map(fill_in).collect()
}

/// The labels of each metric with their values, as `docs/metrics.md` has them. Without values if they are names.
fn documented() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let mut metrics = BTreeMap::new();
    for row in std::fs::read_to_string(path).unwrap().lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = row.split_once('`').unwrap();
        let labels = rest.split(" | ").nth(2).unwrap();
        let label = |text: &str| {
            let (name, values) = text.split_once(": ")?;
            let is_closed = values.starts_with('`');
            let values = values.split(", ").map(|value| value.trim_matches('`').to_owned());
            let values = values.filter(|_| is_closed).collect();
            Some((name.trim_matches('`').to_owned(), values))
        };
        metrics.insert(name.to_owned(), labels.split("<br>").filter_map(label).collect());
    }
    metrics
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_and_label_of_the_examples_exists() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = busy(folder.path()).await;
    let (_, text) = scrape(&bridge, "text/plain").await;
    let documented = documented();
    let described: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let described: BTreeSet<&str> = described.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let known: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    assert_eq!(described, known, "the text and docs/metrics.md have the same metrics");

    let (name, selector) = (r"(?:talaria|process)_[a-z0-9_]+", r"\{([^}]*)\}");
    let names = Regex::new(&format!("{name}(?:{selector})?")).unwrap();
    let plain = Regex::new(name).unwrap();
    let matcher = Regex::new(r#"([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)""#).unwrap();
    let grouping = Regex::new(r"(?:by|on|group_left)\s*\(([^)]*)\)").unwrap();
    let of_target = ["instance", "job"];
    let mut wrong = Vec::new();
    for expression in expressions() {
        let mut all: BTreeSet<String> = of_target.map(str::to_owned).into();
        for found in names.captures_iter(&expression) {
            let name = plain.find(&found[0]).unwrap().as_str();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let metric = base.filter(|base| documented.contains_key(*base)).unwrap_or(name);
            let Some(labels) = documented.get(metric) else {
                wrong.push(format!("{name} does not exist: {expression}"));
                continue;
            };
            all.extend(labels.keys().cloned());
            all.extend((metric != name).then(|| "le".to_owned()));
            for matched in matcher.captures_iter(found.get(1).map_or("", |selector| selector.as_str())) {
                let (label, value) = (&matched[1], &matched[2]);
                let Some(values) = labels.get(label) else {
                    if !of_target.contains(&label) {
                        wrong.push(format!("{name} has no label {label}: {expression}"));
                    }
                    continue;
                };
                let is_known = |value: &str| values.is_empty() || values.contains(value) || value == ".*";
                if !value.split('|').all(is_known) {
                    wrong.push(format!("{label} of {name} is never {value}: {expression}"));
                }
            }
        }
        for labels in grouping.captures_iter(&expression) {
            for label in labels[1].split(',').map(str::trim) {
                if !all.contains(label) {
                    wrong.push(format!("nothing has the label {label}: {expression}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A running Prometheus. Killed when dropped.
struct Prometheus {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one with the configuration of the example, but for the address and the pauses.
    fn start(admin: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = std::fs::read_to_string(observe().join("prometheus.yml")).unwrap();
        let target = admin.trim_start_matches("http://");
        assert!(config.contains("127.0.0.1:8001") && config.matches("15s").count() == 2, "{config}");
        let config = config.replace("127.0.0.1:8001", target).replace("15s", "1s");
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        std::fs::copy(observe().join("alerts.yml"), folder.path().join("alerts.yml")).unwrap();
        let mut child = Command::new(program("prometheus"))
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--web.listen-address=127.0.0.1:0",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut before = String::new();
        let address = loop {
            let line = said.next().unwrap_or_else(|| panic!("Prometheus ended:\n{before}")).unwrap();
            if line.contains("\"Listening on\"") {
                let (_, rest) = line.split_once("address=").expect("an address");
                break rest.split(' ').next().unwrap().to_owned();
            }
            before.push_str(&line);
            before.push('\n');
        };
        // Keep reading, or Prometheus would block on a full pipe.
        std::thread::spawn(move || said.for_each(drop));
        Self { child, url: format!("http://{address}"), _folder: folder }
    }

    async fn get(&self, path: &str) -> Value {
        let response = request(&self.url, "GET", path, &[], "").await;
        serde_json::from_slice(&response.body).unwrap_or_default()
    }

    /// Evaluates an expression now.
    async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}")).await;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default()),
            _ => Err(format!("{expression}: {answer}")),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_prometheus_reads_the_bridge_and_evaluates_every_expression() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = busy(folder.path()).await;
    let prometheus = Prometheus::start(bridge.banner["admin"].as_str().unwrap());
    let target = soon("the bridge is scraped", async {
        loop {
            let targets = prometheus.get("/api/v1/targets").await;
            let target = &targets["data"]["activeTargets"][0];
            if target["health"] == "up" {
                return target.clone();
            }
            assert_ne!(target["health"], "down", "{target}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(target["lastError"], "", "{target}");
    // A rate needs two samples, with something between them.
    bridge.say("hello again").await;
    let turns = "sum(rate(talaria_turns_ended_total[1m]))";
    soon("there are rates", async {
        while prometheus.query(turns).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let mut empty = Vec::new();
    for expression in expressions() {
        if prometheus.query(&expression).await.unwrap().is_empty() {
            empty.push(expression);
        }
    }
    // What is compared with a bound, or about parts that this bridge does not have, may be empty.
    let may_be = |expression: &&String| {
        expression.contains(['>', '<'])
            || expression.contains("== 0")
            || expression.contains("== 1")
            || expression.contains("_tool_")
            || expression.contains("_store_operation_")
    };
    empty.retain(|expression| !may_be(&expression));
    assert!(empty.is_empty(), "these have no result:\n{}", empty.join("\n"));

    let all_evaluated = soon("the rules are evaluated", async {
        loop {
            let rules = prometheus.get("/api/v1/rules").await;
            let rules = rules["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
            if !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown") {
                return rules;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(all_evaluated.len(), rules().len());
    for rule in all_evaluated {
        assert_eq!((&rule["health"], &rule["lastError"]), (&Value::from("ok"), &Value::Null), "{rule}");
    }
}
