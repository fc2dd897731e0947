//! `[oci]`: the registries that components come from.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use talaria_config::{Env, Period, Problem, SecretRef, Size};
use talaria_egress::Egress;
use talaria_oci::{Access, Credentials, Options};

/// The user name if only a token is configured; most registries ignore it.
const USERNAME: &str = "talaria";

/// `[oci]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "oci")]
pub(crate) struct Oci {
    /// Contacts no registry: a component must be in the cache, below `engine.cache_dir`. `TALARIA_OCI_OFFLINE` overrides it.
    ///
    /// Example: `offline = true`
    pub(crate) offline: bool,
    /// The largest component, packed and unpacked.
    ///
    /// Example: `max_size = "256MiB"`
    pub(crate) max_size: Size,
    /// How long pulling one component may take.
    ///
    /// Example: `timeout = "300s"`
    pub(crate) timeout: Period,
    /// The registries, by host, with the port if it has one.
    pub(crate) registry: BTreeMap<String, Registry>,
}

/// `[oci.registry."HOST"]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "oci.registry.NAME")]
pub(crate) struct Registry {
    /// The name that goes with the token.
    ///
    /// Default: `talaria`; most registries only check the token
    ///
    /// Example: `username = "robot"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    /// Where the token, or the password, is: an environment variable or a file. It is sent only to this registry and to the token server
    /// that it names.
    ///
    /// Default: none, which is enough for public components
    ///
    /// Example: `token = { env = "GHCR_TOKEN" }`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<SecretRef>,
    /// Connects without TLS. Registries on loopback are always contacted without TLS.
    ///
    /// Example: `insecure = true`
    pub(crate) insecure: bool,
}

impl Default for Oci {
    fn default() -> Self {
        Self {
            offline: false,
            max_size: Size::mib(128),
            timeout: Period::secs(120),
            registry: BTreeMap::new(),
        }
    }
}

// === impl Oci ===

impl Oci {
    /// Reads credentials and makes the options for pulling. Pulled components are cached below `cache_dir`.
    pub(super) fn resolve(
        &self,
        folder: &Path,
        env: &Env<'_>,
        cache_dir: Option<&Path>,
        client: Egress,
        warnings: &mut Vec<String>,
    ) -> Result<Options, Problem> {
        let mut registries = BTreeMap::new();
        for (host, registry) in &self.registry {
            let key = format!("oci.registry.{host}");
            if host.contains('/') || *host != host.to_lowercase() {
                let what = "a registry is its host in lower case, with the port where it has one: `ghcr.io`";
                return Err(Problem { key, what: what.into() });
            }
            let Registry { username, token, insecure } = registry;
            let token = token.as_ref().map(|token| token.resolve(folder, env)).transpose();
            let token = token.map_err(|what| Problem { key: format!("{key}.token"), what })?;
            if token.is_none() && username.is_some() {
                return Err(Problem {
                    key,
                    what: "`username` without `token`; give both, or neither".into(),
                });
            }
            let username = username.clone().unwrap_or_else(|| USERNAME.into());
            let credentials = token.map(|token| Credentials { username, token });
            registries.insert(host.clone(), Access { credentials, insecure: *insecure });
        }
        Ok(Options {
            client,
            cache: cache_dir.map(|folder| folder.join("oci")),
            offline: env.switch("TALARIA_OCI_OFFLINE", warnings).unwrap_or(self.offline),
            max_bytes: self.max_size.bytes(),
            timeout: self.timeout.get(),
            registries,
        })
    }
}
