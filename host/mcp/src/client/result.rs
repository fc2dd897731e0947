//! The result of a call as a text for a model.
//!
//! Only text is passed on. Of an image, a sound or a resource the model is told that it was there: executors take texts, and
//! a file of a foreign server is not for the model to carry along unseen.

use serde_json::Value;

use super::text::{clip, line, visible};

/// The longest result, in bytes: what fits into the context of a large model beside a conversation.
pub(crate) const RESULT: usize = 256 << 10;

/// What comes before a result that the server marks as an error.
const FAILED: &str = "The tool failed:";

/// A result, and whether the server marks it as an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallResult {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

// === impl CallResult ===

impl CallResult {
    /// Reads the result of `tools/call`; `None` if it is something else.
    pub(crate) fn read(result: &Value) -> Option<Self> {
        let content = result.get("content").map(Value::as_array);
        let structured = result.get("structuredContent").filter(|structured| structured.is_object());
        let text = match (content, structured) {
            (Some(Some(blocks)), _) if !blocks.is_empty() => {
                blocks.iter().map(block).collect::<Vec<_>>().join("\n")
            }
            (None | Some(Some(_)), Some(structured)) => visible(&structured.to_string()),
            (Some(Some(_)), None) => "(the tool returned nothing)".to_owned(),
            (Some(None), _) | (None, None) => return None,
        };
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
        Some(if is_error { Self::failed(&text) } else { Self { text: cut(text), is_error } })
    }

    /// A call that the tool refused, for this reason.
    pub(crate) fn failed(reason: &str) -> Self {
        Self { text: cut(format!("{FAILED}\n{reason}")), is_error: true }
    }
}

/// One block of a result.
fn block(block: &Value) -> String {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    match text("type") {
        Some("text") => visible(text("text").unwrap_or_default()),
        Some("resource_link") => {
            let name = line(text("name").unwrap_or_default());
            format!("[a link to the resource {name:?}: {}]", line(text("uri").unwrap_or_default()))
        }
        Some("resource") => {
            let uri = block.get("resource").and_then(|resource| resource.get("uri")).and_then(Value::as_str);
            format!("[the resource {}, which is not passed on]", line(uri.unwrap_or_default()))
        }
        kind => {
            let kind = line(kind.unwrap_or("something without a type"));
            let media_type = text("mimeType").map(|name| format!(" ({})", line(name))).unwrap_or_default();
            format!("[{kind}{media_type}, which is not passed on]")
        }
    }
}

fn cut(text: String) -> String {
    if text.len() <= RESULT {
        return text;
    }
    format!("{}\n[the result has {} bytes and is cut here]", clip(&text, RESULT), text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_joined_and_the_rest_is_described() {
        let content = json!([
            { "type": "text", "text": "a\u{7}" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "audio", "data": "AAAA", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "file:///x", "text": "hidden" } },
            { "type": "resource_link", "uri": "file:///y", "name": "y" },
            { "type": "text" },
            7,
        ]);
        let read = CallResult::read(&json!({ "content": content })).expect("a result");
        assert_eq!(
            read.text,
            "a\\u{7}\n[image (image/png), which is not passed on]\n[audio (audio/wav), which is not passed on]\n\
             [the resource file:///x, which is not passed on]\n[a link to the resource \"y\": file:///y]\n\n\
             [something without a type, which is not passed on]"
        );
        assert!(!read.is_error);
    }

    #[test]
    fn an_error_is_a_result_that_says_so() {
        let result = json!({ "content": [{ "type": "text", "text": "no such city" }], "isError": true });
        let read = CallResult::read(&result).expect("a result");
        assert_eq!((read.text.as_str(), read.is_error), ("The tool failed:\nno such city", true));
    }

    #[test]
    fn structured_content_stands_in_for_missing_texts() {
        for content in [
            json!({ "structuredContent": { "n": 1 } }),
            json!({ "content": [], "structuredContent": { "n": 1 } }),
        ] {
            assert_eq!(CallResult::read(&content).expect("a result").text, r#"{"n":1}"#);
        }
        assert_eq!(
            CallResult::read(&json!({ "content": [] })).expect("a result").text,
            "(the tool returned nothing)"
        );
        for no in [json!({}), json!(7), json!({ "content": 7 }), json!({ "content": "text" })] {
            assert_eq!(CallResult::read(&no), None, "{no}");
        }
    }

    #[test]
    fn a_long_result_is_cut_and_says_so() {
        let result = json!({ "content": [{ "type": "text", "text": "ä".repeat(RESULT) }] });
        let text = CallResult::read(&result).expect("a result").text;
        assert!(text.len() < RESULT + 100, "{}", text.len());
        assert!(text.ends_with(&format!("…\n[the result has {} bytes and is cut here]", 2 * RESULT)));
    }
}
