//! Reads environment variables.
//!
//! A variable that is empty counts as unset, and a bad value is an error that names the variable, with one exception: a switch
//! that says neither yes nor no means no, and a warning says so.

use crate::source::ConfigError;
use crate::value::HttpUrl;

/// Looks variables up: in the process's environment, or in a test's map.
#[derive(Clone, Copy)]
pub struct Env<'a>(pub &'a dyn Fn(&str) -> Option<String>);

// === impl Env ===

impl Env<'_> {
    /// The value of a variable, if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Whether a switch is on: 1, true, yes or on.
    pub fn is_yes(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default();
        matches!(value.trim().to_lowercase().as_str(), "1" | "true" | "yes" | "on")
    }

    /// The value of a switch, if it is set. One that says neither yes nor no is a no with a warning.
    pub fn switch(&self, name: &str, warnings: &mut Vec<String>) -> Option<bool> {
        let value = self.get(name)?;
        match value.trim().to_lowercase().as_str() {
            "" => None,
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            _ => {
                warnings.push(format!(
                    "{name} is neither yes (1, true, yes, on) nor no (0, false, no, off); taken as no"
                ));
                Some(false)
            }
        }
    }

    /// A port, if one is set.
    pub fn port(&self, name: &str) -> Result<Option<u16>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.trim().parse::<u16>() {
            Ok(port) if port != 0 => Ok(Some(port)),
            _ => Err(ConfigError::variable(
                name,
                format!("`{value}` is no port; give a number from 1 to 65535"),
            )),
        }
    }

    /// An address, if one is set.
    pub fn url(&self, name: &str) -> Result<Option<HttpUrl>, ConfigError> {
        let url = self.get(name).map(|text| text.trim().parse());
        url.transpose().map_err(|problem: String| ConfigError::variable(name, problem))
    }
}
