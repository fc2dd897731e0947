//! `[egress]`: how outbound calls leave this host, for guests, webhooks and the host itself.
//!
//! Proxies come from the environment only, because every other program of the image reads them there. A guest sees neither
//! the variables nor the section.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use talaria_config::{ConfigError, Env, Problem};
use talaria_egress::{Proxies, Roots};
use talaria_redact::Redactor;

/// The largest file of certificates. 4 MiB: ten times what systems ship.
const CA_BYTES: u64 = 4 << 20;

/// `[egress]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "egress")]
pub(crate) struct Egress {
    /// A file with certificates in PEM that `https` trusts beside those of the system, such as the authority of a company's
    /// proxy. It is read at the start.
    ///
    /// Default: none
    ///
    /// Example: `ca = "company-ca.pem"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Leaves the lookup of names to the proxy of `HTTPS_PROXY` or `HTTP_PROXY`, for hosts without a name server. The proxy
    /// then decides which addresses a granted name may lead to; webhooks are still looked up here. See [policy.md](policy.md).
    ///
    /// Example: `proxy_resolves = true`
    pub(crate) proxy_resolves: bool,
}

// === impl Egress ===

impl Egress {
    /// Reads the file and the environment.
    pub(super) fn resolve(
        &self,
        folder: &Path,
        env: &Env<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<talaria_egress::Config, Unusable> {
        let proxies = Proxies::read(|name| env.get(name));
        let proxies = proxies.map_err(|error| {
            Unusable::Variable(ConfigError::variable(error.variable.clone(), error.to_string()))
        })?;
        if self.proxy_resolves && proxies.describe().is_none() {
            warnings.push(
                "egress.proxy_resolves has no effect: neither HTTPS_PROXY nor HTTP_PROXY is set".to_owned(),
            );
        }
        Redactor::process().learn(proxies.secrets());
        let roots = match &self.ca {
            Some(path) => {
                let shown = path.display();
                let at = |what: String| {
                    Unusable::Key(Problem { key: "egress.ca".into(), what: format!("`{shown}`: {what}") })
                };
                Roots::with_pem(&read(&folder.join(path)).map_err(at)?).map_err(at)?
            }
            None => Roots::default(),
        };
        let proxies = proxies.resolving(self.proxy_resolves);
        Ok(talaria_egress::Config { roots, proxies, ..talaria_egress::Config::default() })
    }
}

/// Why the section cannot be used.
pub(super) enum Unusable {
    Key(Problem),
    Variable(ConfigError),
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;

    let mut pem = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(CA_BYTES + 1).read_to_end(&mut pem).map_err(|error| error.to_string())?;
    if pem.len() as u64 > CA_BYTES {
        return Err(format!("it is longer than {CA_BYTES} bytes; it should hold certificates alone"));
    }
    Ok(pem)
}
