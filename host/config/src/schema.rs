//! The keys of a configuration file, read from its JSON Schema: for hints about a key in the wrong place, and for reference
//! tables.

use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value};

/// A key, as the reference lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// In full: `a2a.auth.tokens[].name`.
    pub path: String,
    /// What it takes: `string`, `list of string`, …
    pub kind: String,
    /// Its default, if that is a plain value.
    pub default: Option<Value>,
    /// Its doc comment.
    pub doc: String,
}

/// All keys of `T`, in the order of its fields.
pub fn keys<T: JsonSchema>() -> Vec<Key> {
    let schema = schema_for!(T);
    let mut keys = Vec::new();
    let Some(root) = schema.as_object() else { return keys };
    let definitions = root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    Walk { definitions: &definitions, keys: &mut keys }.table("", root);
    keys
}

struct Walk<'a> {
    definitions: &'a Map<String, Value>,
    keys: &'a mut Vec<Key>,
}

// === impl Walk ===

impl Walk<'_> {
    fn table(&mut self, path: &str, table: &Map<String, Value>) {
        let properties = table.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.key(&path, schema);
        }
    }

    fn key(&mut self, path: &str, schema: &Value) {
        let target = self.target(schema);
        // A table of tables by name: `executor.NAME`.
        let named = ["additionalProperties", "patternProperties"]
            .iter()
            .find_map(|key| target.get(*key)?.as_object());
        if let Some(named) = named.filter(|_| !target.contains_key("properties")) {
            let element = if named.contains_key("$ref") {
                Some(named)
            } else {
                named.values().find_map(Value::as_object)
            };
            if let Some(element) = element {
                let element = self.target(&Value::Object(element.clone()));
                if element.contains_key("properties") {
                    return self.table(&format!("{path}.NAME"), &element);
                }
            }
        }
        // What is written as one value by hand (a reference to a secret) is one key, not a table.
        let written_by_hand = target.contains_key("maxProperties");
        if target.contains_key("properties") && !written_by_hand {
            return self.table(path, &target);
        }
        let text = |schema: &Map<String, Value>| {
            schema.get("description").and_then(Value::as_str).map(str::to_owned)
        };
        let doc = schema.as_object().and_then(text).or_else(|| text(&target)).unwrap_or_default();
        let default = schema.get("default").filter(|default| !default.is_null()).cloned();
        self.keys.push(Key { path: path.to_owned(), kind: self.kind(&target), default, doc });
        if let Some(items) = target.get("items") {
            let items = self.target(items);
            self.table(&format!("{path}[]"), &items);
        }
    }

    /// Follows references and options to what is really there.
    fn target(&self, schema: &Value) -> Map<String, Value> {
        let Some(object) = schema.as_object() else { return Map::new() };
        if let Some(name) =
            object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"))
        {
            return self.definitions.get(name).map(|found| self.target(found)).unwrap_or_default();
        }
        let choices = object.get("anyOf").and_then(Value::as_array);
        match choices.and_then(|choices| choices.iter().find(|choice| choice.get("$ref").is_some())) {
            Some(choice) => self.target(choice),
            None => object.clone(),
        }
    }

    fn kind(&self, schema: &Map<String, Value>) -> String {
        let named = schema.get("type").and_then(|kind| match kind {
            Value::String(name) => Some(name.as_str()),
            Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            _ => None,
        });
        match (named, schema.get("format").and_then(Value::as_str)) {
            (Some("string"), Some("size")) => "size".into(),
            (Some("string"), Some("period")) => "duration".into(),
            (Some("string"), Some("uri")) => "URL".into(),
            (Some("array"), _) => {
                let items = schema.get("items").map(|items| self.kind(&self.target(items)));
                match items.unwrap_or_default() {
                    items if items.contains(' ') => format!("list of {items}"),
                    item => format!("list of {item}s"),
                }
            }
            (Some("object"), _) => "table".into(),
            (Some(name), _) => name.into(),
            (None, _) => self.choices(schema),
        }
    }

    /// `"message"` or `"task"`; a string or a table.
    fn choices(&self, schema: &Map<String, Value>) -> String {
        let choices = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let shown = choices.map(|choice| match (choice.get("const"), choice.as_object()) {
            (Some(constant), _) => format!("`{constant}`"),
            (None, Some(choice)) => self.kind(choice),
            (None, None) => String::new(),
        });
        shown.collect::<Vec<_>>().join(" or ")
    }
}
