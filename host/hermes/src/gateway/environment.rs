//! The environment of the gateway's process.
//!
//! It starts with an empty environment and gets only the variables of [`Passed`]: what a Python process needs, what
//! hermes-agent and its plugin read, the keys of model providers, and what `gateway.env` lists. A variable that the
//! configuration names as a secret of this host never goes along, whatever the list says ([`HostSecrets`]): with the token of
//! the operator or of a caller, the agent could act in that name. Exempt is what both sides share by design: the gateway's
//! key, the plugin's secret, and a provider's key that an executor uses too.
//!
//! The values are read when the process is started and are not kept. A list of what to leave out would be shorter, but would
//! miss every secret that it does not know.

use std::ffi::OsString;

use talaria_config::Problem;

use super::section::KEY;
use crate::plugin::SHARED_SECRET;

/// The variables of this process's environment that the gateway needs to find its models.
pub const FORWARDED: [&str; 31] = [
    "HERMES_INFERENCE_PROVIDER",
    "HERMES_AUXILIARY_PROVIDER",
    "HERMES_API_KEY",
    "NOUS_API_KEY",
    "OPENROUTER_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GLM_API_KEY",
    "KIMI_API_KEY",
    "KIMI_CN_API_KEY",
    "MINIMAX_API_KEY",
    "MINIMAX_CN_API_KEY",
    "DASHSCOPE_API_KEY",
    "XIAOMI_API_KEY",
    "ARCEEAI_API_KEY",
    "NVIDIA_API_KEY",
    "OLLAMA_API_KEY",
    "HF_TOKEN",
    "AI_GATEWAY_API_KEY",
    "KILOCODE_API_KEY",
    "OPENCODE_ZEN_API_KEY",
    "OPENCODE_GO_API_KEY",
    "COPILOT_GITHUB_TOKEN",
    "GH_TOKEN",
    "HERMES_CUSTOM_BASE_URL",
    "HERMES_CUSTOM_API_KEY",
    "HERMES_CUSTOM_API_MODE",
];

/// What else every gateway gets. A `*` at the end stands for any ending.
const ALWAYS: [&str; 34] = [
    // The machine and the user.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "XDG_*",
    // Python, and the libraries and browsers that its packages load.
    "PYTHON*",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "PLAYWRIGHT_BROWSERS_PATH",
    // The way to the network.
    "SSL_CERT_*",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    // hermes-agent and its plugin.
    "HERMES_*",
    "API_SERVER_*",
    "MOLECULE_A2A_*",
    "WORKSPACE_ID",
    "PLATFORM_URL",
];

/// The variables that the configuration names as secrets of this host, each with the key that names it.
#[derive(Debug, Clone, Default)]
pub struct HostSecrets(Vec<(String, String)>);

/// Which variables of this process's environment the gateway gets.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// `gateway.env`
    more: Vec<String>,
    never: HostSecrets,
}

// === impl HostSecrets ===

impl HostSecrets {
    /// Adds the variable of a secret that this host keeps to itself; `key` is the key of the configuration that names it.
    pub fn own(&mut self, variable: &str, key: impl Into<String>) {
        // It proves both sides to each other.
        if variable != SHARED_SECRET && variable != KEY {
            self.0.push((variable.to_owned(), key.into()));
        }
    }

    /// Adds the variable of a secret that an executor is granted. The gateway may have a provider's key too.
    pub fn of_executor(&mut self, variable: &str, key: impl Into<String>) {
        if !FORWARDED.contains(&variable) {
            self.own(variable, key);
        }
    }

    /// The key of the configuration that names a variable as a secret.
    fn key(&self, variable: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == variable).map(|(_, key)| key.as_str())
    }
}

// === impl Passed ===

impl Passed {
    /// What `gateway.env` lists, besides what every gateway gets.
    ///
    /// # Errors
    /// For a name that cannot be a variable's, and for a secret of this host.
    pub fn read(list: &[String], never: HostSecrets) -> Result<Self, Problem> {
        for (index, name) in list.iter().enumerate() {
            let problem = |what: String| Problem { key: format!("gateway.env[{index}]"), what };
            let stem = name.strip_suffix('*').unwrap_or(name);
            if stem.is_empty() || stem.contains(['*', '=', '\0']) {
                return Err(problem(format!(
                    "`{name}` is not the name of a variable; write one, or its beginning and a `*`, such as `EXA_*`"
                )));
            }
            if let Some(key) = never.key(name) {
                return Err(problem(format!(
                    "`{name}` is a secret of this host (`{key}`), and the gateway must not have it; remove it here"
                )));
            }
        }
        Ok(Self { more: list.to_vec(), never })
    }

    /// Whether the gateway gets a variable.
    pub fn includes(&self, name: &str) -> bool {
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => name == pattern,
        };
        let listed = ALWAYS.iter().chain(&FORWARDED).copied().chain(self.more.iter().map(String::as_str));
        self.never.key(name).is_none() && listed.into_iter().any(fits)
    }

    /// Why the gateway does not get a variable that it is meant to have.
    pub(super) fn withheld(&self, name: &str) -> Option<String> {
        let key = self.never.key(name)?;
        Some(format!(
            "the gateway does not get {name}, which is a secret of this host (`{key}`); use two variables"
        ))
    }

    /// The variables of this process that the gateway gets.
    pub(super) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| self.includes(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_gets_what_it_needs_and_what_is_listed() {
        let list = ["EXA_API_KEY".to_owned(), "FIRECRAWL_*".to_owned()];
        let passed = Passed::read(&list, HostSecrets::default()).unwrap();
        for name in ["PATH", "LC_ALL", "https_proxy", "HERMES_X", "OPENAI_API_KEY", "API_SERVER_KEY"] {
            assert!(passed.includes(name), "{name}");
        }
        for name in [SHARED_SECRET, "EXA_API_KEY", "FIRECRAWL_API_KEY"] {
            assert!(passed.includes(name), "{name}");
        }
        for name in
            ["ADMIN_TOKEN", "MOLECULE_WORKSPACE_TOKEN", "EXA_API_KEY_2", "AWS_SECRET_ACCESS_KEY", "path", ""]
        {
            assert!(!passed.includes(name), "{name}");
        }
    }

    #[test]
    fn a_secret_of_the_host_never_goes_along_whatever_the_list_says() {
        let mut secrets = HostSecrets::default();
        secrets.own("HERMES_ADMIN", "admin.token");
        secrets.own("GH_TOKEN", "oci.registry.ghcr.io.token");
        secrets.own(SHARED_SECRET, "callback.secret");
        secrets.of_executor("SEARCH_KEY", "executor.search.grant.secrets");
        secrets.of_executor("OPENAI_API_KEY", "executor.hermes.grant.secrets");
        let passed = Passed::read(&["SEARCH_*".into(), "H*".into()], secrets.clone()).unwrap();
        for (name, goes) in [
            ("HERMES_ADMIN", false),
            ("GH_TOKEN", false),
            ("SEARCH_KEY", false),
            ("SEARCH_URL", true),
            ("OPENAI_API_KEY", true),
            (SHARED_SECRET, true),
        ] {
            assert_eq!(passed.includes(name), goes, "{name}");
        }
        let problem = Passed::read(&["X".into(), "SEARCH_KEY".into()], secrets).unwrap_err();
        assert_eq!(problem.key, "gateway.env[1]");
        assert!(
            problem.what.contains("secret of this host (`executor.search.grant.secrets`)"),
            "{}",
            problem.what
        );
    }

    #[test]
    fn a_pattern_has_a_beginning_and_its_star_at_the_end() {
        for bad in ["", "*", "A*B", "*A", "A=B", "A\0"] {
            assert!(Passed::read(&[bad.into()], HostSecrets::default()).is_err(), "{bad:?}");
        }
    }
}
