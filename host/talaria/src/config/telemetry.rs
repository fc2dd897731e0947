//! `[telemetry]` and the variables of OpenTelemetry.

use secrecy::ExposeSecret as _;
use talaria_config::ConfigError;
use talaria_redact::Redactor;
use talaria_telemetry::Config;

use super::file;
use super::load::Loader;

/// A word of a header that is shorter is no credential: `Bearer`, `tenant-a`.
const SHORTEST: usize = 16;

impl Loader<'_> {
    /// Reads the variables. `None` if traces are off.
    pub(super) fn telemetry(&mut self, file: &file::Telemetry) -> Result<Option<Config>, ConfigError> {
        let read = Config::read(|name| self.env.get(name));
        let read = read.map_err(|invalid| ConfigError::variable(invalid.variable, invalid.problem))?;
        let Some(mut config) = read else {
            if file.content {
                let warning =
                    "telemetry.content has no effect: traces are off; set OTEL_EXPORTER_OTLP_ENDPOINT";
                self.warnings.push(warning.to_owned());
            }
            return Ok(None);
        };
        // Of `Basic TOKEN`, the token too.
        let words = config.secrets().flat_map(|secret| secret.expose_secret().split_whitespace());
        Redactor::process().learn(words.filter(|word| word.len() >= SHORTEST));
        Redactor::process().learn(config.secrets().map(|secret| secret.expose_secret()));
        config.content |= file.content;
        if config.content {
            self.warnings.push(format!("traces record what is said, and go to {}", config.endpoint()));
        }
        Ok(Some(config))
    }
}
