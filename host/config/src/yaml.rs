//! YAML as JSON values, within the bounds of the parser: aliases cannot make a small file large, and nesting is limited.

use serde_json::{Map, Value};

/// Parses a document that is a mapping; an empty one has no keys.
///
/// # Errors
/// One line that quotes nothing of the text, since configuration can hold secrets.
pub fn mapping(text: &str) -> Result<Map<String, Value>, String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("the document is not a mapping of keys to values".into()),
        // This parser wants a document, which an empty text is not.
        Err(_) if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) => {
            Ok(Map::new())
        }
        Err(error) => Err(match error.location() {
            Some(at) => format!("not YAML (line {}, column {})", at.line(), at.column()),
            None => "not YAML".into(),
        }),
    }
}

/// Writes a mapping as YAML.
///
/// # Errors
/// For numbers that YAML cannot write, which JSON does not have.
pub fn text(value: &Map<String, Value>) -> Result<String, String> {
    serde_saphyr::to_string(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mapping_is_read_and_anything_else_is_told_without_its_text() {
        let map = mapping("a: 1\nb: [x, \"2\"]\nc: {d: true, e: ~}\nf: |\n  two\n  lines\n").unwrap();
        let expected = json!({ "a": 1, "b": ["x", "2"], "c": { "d": true, "e": null }, "f": "two\nlines\n" });
        assert_eq!(Value::Object(map), expected);
        for empty in ["", "\n", "# only this\n", "---\n", "~"] {
            assert_eq!(mapping(empty).unwrap(), Map::new(), "{empty:?}");
        }
        for (text, said) in [
            ("- a\n", "not a mapping"),
            ("just text", "not a mapping"),
            ("a: [hidden", "not YAML"),
            ("a: b: hidden", "not YAML"),
        ] {
            let error = mapping(text).unwrap_err();
            assert!(
                error.contains(said) && !error.contains("hidden") && !error.contains('\n'),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn a_document_cannot_grow_by_aliases_or_by_nesting() {
        let mut laughs = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
        for (one, next) in
            ["a", "b", "c", "d", "e", "f", "g", "h"].iter().zip(["b", "c", "d", "e", "f", "g", "h", "i"])
        {
            let list = vec![format!("*{one}"); 10].join(", ");
            laughs.push_str(&format!("{next}: &{next} [{list}]\n"));
        }
        assert!(mapping(&laughs).is_err());
        assert!(mapping(&format!("a: {}", "[".repeat(100_000))).is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let value = json!({ "s": "yes", "n": "08", "t": "a: b # c\n'\"", "l": [1, 2.5, null, true], "m": { "x-y": {} }, "e": [] });
        let map = value.as_object().unwrap();
        assert_eq!(&mapping(&text(map).unwrap()).unwrap(), map);
    }
}
