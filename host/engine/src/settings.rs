//! Defaults of settings, and egress patterns that refer to settings.

use serde_json::{Map, Value};

/// A pattern refers to a setting that is missing or is not a string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` names the setting `{name}`, which is not set to a text")]
pub struct UnknownSetting {
    /// The pattern.
    pub pattern: String,
    /// The name of the setting.
    pub name: String,
}

/// Returns `settings` with the defaults of a component's schema for those that are missing.
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

/// Replaces `{setting:NAME}` and `{parent:NAME}` in an egress pattern of a component's needs by the value of the
/// setting or by its parent address. Trailing slashes of the value are dropped, as executors drop them from base URLs.
///
/// # Errors
/// Returns [`UnknownSetting`] if the setting is missing or is not a string.
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
        filled.push_str(if parent { parent_of(value) } else { value });
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Finds the first placeholder. Returns the text before it, whether it asks for the parent address, and the text after
/// its opening.
fn placeholder(text: &str) -> Option<(&str, bool, &str)> {
    let openings = [("{setting:", false), ("{parent:", true)];
    let found =
        openings.into_iter().filter_map(|(opening, parent)| Some((text.find(opening)?, opening, parent)));
    let (at, opening, parent) = found.min()?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, parent, rest.strip_prefix(opening)?))
}

/// Returns the URL without its last path segment. A URL without a path is its own parent.
fn parent_of(url: &str) -> &str {
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
    fn a_pattern_is_filled_with_the_setting_or_its_default() {
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
    fn a_pattern_can_refer_to_the_parent_address_of_a_setting() {
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
