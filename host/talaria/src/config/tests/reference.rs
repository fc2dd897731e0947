//! The reference: schema and table are in `docs/`, and are what the code says.
//!
//! After a change: `TALARIA_BLESS=1 cargo test -p talaria reference`, then read the difference.

use std::path::PathBuf;

use talaria_config::{Key, keys};

use crate::config::file::File;

fn docs(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(name)
}

fn golden(name: &str, text: &str) {
    let path = docs(name);
    if std::env::var_os("TALARIA_BLESS").is_some() {
        std::fs::write(&path, text).expect("docs/ can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/{name} is not what the code says; run `TALARIA_BLESS=1 cargo test -p talaria reference`"
    );
}

/// The paragraph that starts so, and the rest.
fn take(doc: &str, label: &str) -> (Option<String>, String) {
    let paragraphs = || doc.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    let found =
        paragraphs().find_map(|paragraph| paragraph.strip_prefix(label).map(|text| text.trim().to_owned()));
    let rest: Vec<_> = paragraphs().filter(|paragraph| !paragraph.starts_with(label)).collect();
    (found, rest.join("\n\n"))
}

fn row(key: &Key) -> String {
    let (example, doc) = take(&key.doc, "Example:");
    let (told, meaning) = take(&doc, "Default:");
    let default = match (told, &key.default) {
        (Some(told), _) => told,
        (None, Some(value)) => format!("`{}`", value.to_string().replace('|', "\\|")),
        (None, None) => "required".into(),
    };
    let example = example.map(|example| format!("<br>{example}")).unwrap_or_default();
    format!("| `{}` | {} | {default} | {meaning}{example} |\n", key.path, key.kind)
}

#[test]
fn schema_is_in_docs() {
    golden("talaria.schema.json", &format!("{:#}\n", schemars::schema_for!(File).as_value()));
}

#[test]
fn table_is_in_docs() {
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from host/talaria/src/config; `TALARIA_BLESS=1 cargo test -p talaria reference` writes it. -->\n\n\
         Flags go before the environment, the environment before the file, the file before the defaults. The file is\n\
         `talaria.toml` in the working directory, or the one that `--config` names. A key that is not in this table is an\n\
         error. Relative paths start at the file's folder. The same as JSON Schema: [talaria.schema.json](talaria.schema.json).\n\n\
         | key | type | default | meaning |\n|---|---|---|---|\n",
    );
    page.extend(keys::<File>().iter().map(row));
    page.push_str(ENVIRONMENT);
    golden("configuration.md", &page);
}

const ENVIRONMENT: &str = "
## Environment

| variable | effect |
|---|---|
| `HERMES_API_BASE` | `settings.base_url` of `executor.chat-completions` and `executor.hermes-runs`, a trailing slash stripped |
| `API_SERVER_KEY` | the secret that `chat-completions` and `hermes-runs` send to the gateway; `API_SERVER_KEY_FILE` names a file that holds it |
| `OPENAI_BASE_URL` | `executor.hermes.settings.base_url`, a trailing slash stripped |
| `OPENAI_API_KEY` | the secret that `hermes` sends to its endpoint; `OPENAI_API_KEY_FILE` names a file that holds it |
| `WORKSPACE_ID` | makes this a workspace of the platform, with the other variables of [workspace.md](workspace.md); listens on `0.0.0.0:8000` unless told otherwise, and lets everybody call while there are no tokens |
| `MOLECULE_A2A_PLATFORM_ENABLED` | 1, true, yes or on makes `plugin-callback` the default executor, with `chat-completions` as its fallback |
| `MOLECULE_A2A_PLATFORM_HOST`, `_PORT` | where the plugin is; overrides `executor.plugin-callback.settings.inbound_url` |
| `MOLECULE_A2A_PLATFORM_SHARED_SECRET` | sent to the plugin, and wanted from it; or `MOLECULE_A2A_PLATFORM_SHARED_SECRET_FILE`, its file |
| `MOLECULE_A2A_CALLBACK_HOST`, `_PORT` | overrides `callback.listen` |
| `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` | the proxies of outbound calls, as `http://[USER:PASSWORD@]HOST:PORT`, and the hosts that are called directly; lower case wins. `localhost` and loopback addresses never go through a proxy |
| `OTEL_*` | traces: where they are sent, and which turns are recorded; see [telemetry.md](telemetry.md) |
| `XDG_CACHE_HOME`, `HOME` | where compiled components are kept |
| any name in `grant.secrets` | that secret's value; with `_FILE` appended, the path of the file that holds it |

An empty variable counts as unset.
";

/// Sections that may be left out, but not written by half.
const WHOLE: [&str; 2] = ["a2a.card.signing.", "tools.servers.NAME."];

/// The section of a key that is not written by half.
fn whole(key: &Key) -> Option<&'static str> {
    WHOLE.into_iter().find(|section| key.path.starts_with(section))
}

#[test]
fn every_key_is_explained() {
    for key in keys::<File>() {
        let (example, doc) = take(&key.doc, "Example:");
        let (default, meaning) = take(&doc, "Default:");
        assert!(example.is_some(), "{} has no Example:", key.path);
        assert!(meaning.trim().len() > 8, "{} has no meaning", key.path);
        let may_be_required = key.path.contains("[]") || whole(&key).is_some();
        assert!(default.is_some() || key.default.is_some() || may_be_required, "{} has no default", key.path);
    }
}

#[test]
fn every_example_is_valid() {
    use talaria_config::Source;

    let example = |key: &Key| {
        let (example, _) = take(&key.doc, "Example:");
        example.unwrap_or_default().trim_matches('`').to_owned()
    };
    let keys = keys::<File>();
    for key in &keys {
        let example = match whole(key) {
            Some(section) => {
                let all = keys.iter().filter(|key| key.path.starts_with(section)).map(example);
                all.collect::<Vec<_>>().join("\n")
            }
            None => example(key),
        };
        let section = key.path.rsplit_once('.').map(|(section, _)| section).unwrap_or_default();
        // An element of a list is shown whole in the list's own example.
        if section.contains("[]") {
            continue;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("talaria.toml");
        let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
        std::fs::write(&path, format!("{}{example}\n", header.replace("NAME", "name"))).expect("writable");
        let source = Source::read(&path).expect("readable").expect("there");
        let parsed = source.parse::<File>();
        assert!(parsed.is_ok(), "the example of {} does not parse: {:?}", key.path, parsed.err());
    }
}
