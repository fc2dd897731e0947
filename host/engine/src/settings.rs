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

/// What stands for a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Take {
    /// The value.
    Value,
    /// Its parent address.
    Parent,
    /// Its origin.
    Origin,
}

/// Replaces `{setting:NAME}`, `{parent:NAME}` and `{origin:NAME}` in an egress pattern of a component's needs by the value
/// of the setting, by its parent address, or by its origin. Of several names, with `|` between them, the first counts that
/// is set to a text that is not empty. Trailing slashes of the value are dropped, as executors drop them from base URLs.
///
/// # Errors
/// Returns [`UnknownSetting`] if the setting is missing or is not a string.
pub fn fill_in(pattern: &str, settings: &Map<String, Value>) -> Result<String, UnknownSetting> {
    let mut filled = String::new();
    let mut rest = pattern;
    while let Some((before, take, names, after)) = placeholder(rest) {
        let mut values = names.split('|').filter_map(|name| settings.get(name)?.as_str());
        let first = values.next();
        let Some(value) = first
            .filter(|first| !first.is_empty())
            .or_else(|| values.find(|value| !value.is_empty()))
            .or(first)
        else {
            return Err(UnknownSetting { pattern: pattern.to_owned(), name: names.to_owned() });
        };
        filled.push_str(before);
        let value = value.trim_end_matches('/');
        filled.push_str(match take {
            Take::Value => value,
            Take::Parent => parent_of(value),
            Take::Origin => origin_of(value),
        });
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Whether an egress pattern of a component's needs refers to a setting.
#[must_use]
pub fn refers_to(pattern: &str, setting: &str) -> bool {
    let mut rest = pattern;
    while let Some((_, _, names, after)) = placeholder(rest) {
        if names.split('|').any(|name| name == setting) {
            return true;
        }
        rest = after;
    }
    false
}

/// Finds the first placeholder. Returns the text before it, what it asks for, the names in it, and the text after it.
fn placeholder(text: &str) -> Option<(&str, Take, &str, &str)> {
    let openings = [("{setting:", Take::Value), ("{parent:", Take::Parent), ("{origin:", Take::Origin)];
    let found = openings.into_iter().filter_map(|(opening, take)| Some((text.find(opening)?, opening, take)));
    let (at, opening, take) = found.min()?;
    let (before, rest) = text.split_at_checked(at)?;
    let rest = rest.strip_prefix(opening)?;
    let (names, after) = rest.split_once('}').unwrap_or((rest, ""));
    Some((before, take, names, after))
}

/// Returns the URL without its path and its query.
fn origin_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + "://".len());
    let end = url.get(host..).and_then(|rest| rest.find(['/', '?', '#']));
    end.and_then(|end| url.get(..host + end)).unwrap_or(url)
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
    fn a_pattern_can_refer_to_the_origin_of_the_first_setting_that_is_set() {
        let need = "POST {origin:elsewhere|url}/*";
        for (settings, filled) in [
            (json!({ "url": "http://h:1/a/card.json?x" }), Some("POST http://h:1/*")),
            (json!({ "url": "http://h:1" }), Some("POST http://h:1/*")),
            (json!({ "url": "http://h:1/", "elsewhere": "" }), Some("POST http://h:1/*")),
            (json!({ "url": "http://h:1/", "elsewhere": "https://i/x/y" }), Some("POST https://i/*")),
            (json!({ "url": 7 }), None),
        ] {
            let settings = settings.as_object().cloned().unwrap();
            assert_eq!(fill_in(need, &settings).ok().as_deref(), filled, "{settings:?}");
        }
        for (setting, refers) in [("url", true), ("elsewhere", true), ("else", false), ("origin", false)] {
            assert_eq!(refers_to(need, setting), refers, "{setting}");
        }
        assert!(refers_to("GET {setting:a}/{parent:b}", "b") && !refers_to("GET http://h/", "h"));
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
