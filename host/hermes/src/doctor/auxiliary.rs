//! Checks whether the gateway has a model for its side tasks: looking at images, and summarising web pages.
//!
//! hermes-agent 0.19 takes the main provider for them if one is chosen, else the first provider of a list that has a key.
//! Without any, these tools fail silently while everything else works, so the finding is a warning. `HERMES_AUXILIARY_PROVIDER`
//! of the Python bridge is not read by 0.19, which has `auxiliary.TASK.provider` in its `config.yaml` instead.

use serde_json::Value;

use super::Examination;

const NAME: &str = "auxiliary model";

/// A side task: its key below `auxiliary`, its name for people, and the keys that give it a provider.
struct Task {
    key: &'static str,
    name: &'static str,
    keys: &'static [&'static str],
}

const TASKS: [Task; 2] = [
    Task {
        key: "vision",
        name: "images",
        keys: &["OPENROUTER_API_KEY", "NOUS_API_KEY", "DEEPINFRA_API_KEY"],
    },
    Task {
        key: "web_extract",
        name: "web summaries",
        keys: &[
            "OPENROUTER_API_KEY",
            "NOUS_API_KEY",
            "HERMES_CUSTOM_BASE_URL",
            "ANTHROPIC_API_KEY",
            "GLM_API_KEY",
            "KIMI_API_KEY",
            "MINIMAX_API_KEY",
            "MINIMAX_CN_API_KEY",
        ],
    },
];

/// Main providers whose endpoint takes no images.
const BLIND: [&str; 2] = ["kimi-coding", "kimi-coding-cn"];

impl Examination<'_> {
    /// Warns if images or web summaries have no model.
    pub(super) fn auxiliary(&mut self) {
        let Some(home) = self.subject.home().filter(|home| home.path().is_dir()) else { return };
        let config = home.config();
        let set = |name: &str| self.subject.env.get(name).is_some() || home.variable(name).is_some();
        let has_login = home.path().join("auth.json").is_file();
        let missing: Vec<_> = TASKS
            .iter()
            .filter(|task| !has_login && !has_model(&config, task, set))
            .map(|task| task.name)
            .collect();
        if set("HERMES_AUXILIARY_PROVIDER") && !missing.is_empty() {
            self.findings.warn(
                NAME,
                "hermes-agent 0.19 does not read HERMES_AUXILIARY_PROVIDER",
                "run `hermes config set auxiliary.vision.provider NAME`, and the same for auxiliary.web_extract",
            );
        }
        match missing.is_empty() {
            true => self.findings.ok(NAME, "images and web summaries have a provider"),
            false => self.findings.warn(
                NAME,
                format!("no provider for {}: those tools will fail", missing.join(" and ")),
                "set OPENROUTER_API_KEY, or choose the provider with HERMES_INFERENCE_PROVIDER, or write auxiliary.vision and auxiliary.web_extract into the gateway's config.yaml; see docs/providers.md",
            ),
        }
    }
}

/// Whether a task has a provider: its own, the chosen main provider, or one that has a key.
fn has_model(config: &Value, task: &Task, set: impl Fn(&str) -> bool) -> bool {
    let text = |path: &str| config.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let own = text(&format!("/auxiliary/{}/provider", task.key)).filter(|name| *name != "auto");
    let endpoint = text(&format!("/auxiliary/{}/base_url", task.key));
    let main = text("/model/provider").filter(|name| *name != "auto");
    let main_serves = match main {
        Some(main) => task.key != "vision" || !BLIND.contains(&main),
        None => set("HERMES_INFERENCE_PROVIDER"),
    };
    own.is_some() || endpoint.is_some() || main_serves || task.keys.iter().any(|key| set(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn side_tasks_take_their_own_provider_the_main_one_or_one_with_a_key() {
        for (config, keys, images, pages) in [
            (json!({}), &["OPENAI_API_KEY"][..], false, false),
            (json!({}), &["OPENROUTER_API_KEY"], true, true),
            (json!({}), &["ANTHROPIC_API_KEY"], false, true),
            (json!({}), &["HERMES_INFERENCE_PROVIDER"], true, true),
            (json!({ "model": { "provider": "auto" } }), &["GLM_API_KEY"], false, true),
            (json!({ "model": { "provider": "custom" } }), &[], true, true),
            (json!({ "model": { "provider": "kimi-coding" } }), &[], false, true),
            (json!({ "auxiliary": { "vision": { "provider": "nous" } } }), &[], true, false),
            (json!({ "auxiliary": { "web_extract": { "base_url": "http://h/v1" } } }), &[], false, true),
            (json!({ "auxiliary": { "vision": { "provider": "auto" } } }), &[], false, false),
        ] {
            let found = TASKS.each_ref().map(|task| has_model(&config, task, |key| keys.contains(&key)));
            assert_eq!(found, [images, pages], "{config} {keys:?}");
        }
    }
}
