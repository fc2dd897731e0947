//! Settings, and the patterns that name them.

use serde_json::{Map, Value};

/// A pattern names a setting that has no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` names the setting `{name}`, which is not set to a text")]
pub struct UnknownSetting {
    /// The pattern.
    pub pattern: String,
    /// The setting.
    pub name: String,
}

/// `settings` with the defaults of a component's schema below them.
pub(crate) fn with_defaults(schema: &Value, settings: &Map<String, Value>) -> Map<String, Value> {
    let mut filled = Map::new();
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, property) in properties {
            if let Some(default) = property.get("default") {
                filled.insert(name.clone(), default.clone());
            }
        }
    }
    filled.extend(settings.clone());
    filled
}

/// Fills `{setting:NAME}` and `{parent:NAME}` in an egress pattern of a component's needs: the value, or the address one
/// step above it. Slashes at a value's end are dropped, as executors drop them from base URLs.
///
/// # Errors
/// [`UnknownSetting`] where the setting is absent or no text.
pub fn fill_in(pattern: &str, settings: &Map<String, Value>) -> Result<String, UnknownSetting> {
    let mut filled = String::new();
    let mut rest = pattern;
    while let Some((before, parent, after)) = placeholder(rest) {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let Some(value) = settings.get(name).and_then(Value::as_str) else {
            return Err(UnknownSetting { pattern: pattern.to_owned(), name: name.to_owned() });
        };
        filled.push_str(before);
        let value = value.trim_end_matches('/');
        filled.push_str(if parent { above(value) } else { value });
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// What stands before the first placeholder, whether it asks for the address above, and what follows its opening.
fn placeholder(text: &str) -> Option<(&str, bool, &str)> {
    let openings = [("{setting:", false), ("{parent:", true)];
    let found =
        openings.into_iter().filter_map(|(opening, parent)| Some((text.find(opening)?, opening, parent)));
    let (at, opening, parent) = found.min()?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, parent, rest.strip_prefix(opening)?))
}

/// The address one step above; that of a whole host is its own.
fn above(url: &str) -> &str {
    let path = url.find("://").map_or(0, |at| at + "://".len());
    match url.rfind('/') {
        Some(at) if at > path => url.get(..at).unwrap_or(url),
        _ => url,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_takes_the_settings_value_or_its_default() {
        let schema = json!({ "properties": { "base_url": { "default": "http://127.0.0.1:8642/v1" } } });
        let settings = with_defaults(&schema, &Map::new());
        assert_eq!(
            fill_in("POST {setting:base_url}/chat/completions", &settings).unwrap(),
            "POST http://127.0.0.1:8642/v1/chat/completions"
        );
        let own = json!({ "base_url": "https://example.com/" }).as_object().cloned().unwrap();
        assert_eq!(
            fill_in("GET {setting:base_url}/health", &with_defaults(&schema, &own)).unwrap(),
            "GET https://example.com/health"
        );
        assert_eq!(fill_in("GET {setting:nope}/", &settings).unwrap_err().name, "nope");
    }

    #[test]
    fn a_pattern_can_name_the_address_above_a_setting() {
        for (base, above) in [
            ("http://h:1/v1", "http://h:1"),
            ("http://h:1/p/one/v1/", "http://h:1/p/one"),
            ("http://h:1", "http://h:1"),
            ("http://h:1/", "http://h:1"),
            ("h", "h"),
        ] {
            let settings = json!({ "base_url": base }).as_object().cloned().unwrap();
            let filled = fill_in("GET {parent:base_url}/api/* {setting:base_url}", &settings).unwrap();
            assert_eq!(filled, format!("GET {above}/api/* {}", base.trim_end_matches('/')));
        }
    }
}
