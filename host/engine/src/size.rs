//! The cost to the host of what a guest passes to it.
//!
//! Every string counts: text, ids, names, file names, media types, JSON. The cost is what the host stores, not what the
//! guest wrote: a text is stored as JSON with its escapes, bytes as base64, JSON is held as a tree, and each item has a
//! fixed part. Otherwise empty events, empty parts and `[0,0,…]` would be nearly free for a guest and dear to the host.

use crate::contract::bindings::talaria::executor::{events as wit, types};

/// The fixed part of a piece of the answer's text. 200,000 pieces of one character take 67 MB in SQLite, 333 bytes each.
const DELTA: usize = 320;
/// The fixed part of every other entry in a task's log. 131,072 empty statuses take 100 MB in SQLite, 760 bytes each: the
/// entry, and the message that it adds to the task's snapshot. In memory they take up to 2 KiB each while the snapshot is
/// written.
pub(crate) const ENTRY: usize = 1024;
/// The fixed part of a part, of a line in a transcript and of a log line. A log line has its time, its target and the
/// fields of the turn's span; a part has 176 bytes in memory.
pub(crate) const ITEM: usize = 256;
/// The size of a JSON value in memory.
const VALUE: usize = 80;
/// The fixed part of a JSON object: its smallest table.
const OBJECT: usize = 512;
/// The largest JSON tree in memory. It is as much as one turn may put out by default.
const MAX_TREE: usize = 64 << 20;

/// The size of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// The bytes that the guest passed.
    pub(crate) bytes: usize,
    /// The bytes that it costs the host.
    pub(crate) cost: usize,
}

impl Size {
    /// The size of an empty item with this fixed part.
    pub(crate) fn of(fixed: usize) -> Self {
        Self { bytes: 0, cost: fixed }
    }

    /// Adds the fixed part of another item.
    pub(crate) fn fixed(self, fixed: usize) -> Self {
        self.add(0, fixed)
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.add(text.len(), text.bytes().map(escaped).sum())
    }

    pub(crate) fn option(self, text: Option<&String>) -> Self {
        text.map_or(self, |text| self.text(text))
    }

    /// Adds bytes, which are stored as base64.
    pub(crate) fn base64(self, bytes: &[u8]) -> Self {
        self.add(bytes.len(), bytes.len().div_ceil(3).saturating_mul(4))
    }

    pub(crate) fn json(self, text: Option<&String>) -> Self {
        text.map_or(self, |text| self.add(text.len(), text.len().saturating_add(tree(text))))
    }

    pub(crate) fn parts(self, parts: &[types::Part]) -> Self {
        parts.iter().fold(self, |size, part| {
            let size = size.fixed(ITEM);
            let size = match &part.content {
                types::Content::Text(text) | types::Content::Uri(text) => size.text(text),
                types::Content::Data(data) => size.json(Some(data)),
                types::Content::Bytes(bytes) => size.base64(bytes),
            };
            size.option(part.media_type.as_ref()).option(part.filename.as_ref()).json(part.metadata.as_ref())
        })
    }

    pub(crate) fn event(event: &wit::Event) -> Self {
        let entry = Self::of(ENTRY);
        match event {
            wit::Event::TextDelta(delta) => Self::of(DELTA).text(delta),
            wit::Event::Status(status) => entry.text(status),
            wit::Event::Artifact(artifact) => entry
                .text(&artifact.id)
                .option(artifact.name.as_ref())
                .option(artifact.description.as_ref())
                .json(artifact.metadata.as_ref())
                .parts(&artifact.parts),
            wit::Event::ToolProgress(tool) => {
                entry.text(&tool.id).text(&tool.name).option(tool.label.as_ref()).json(tool.metadata.as_ref())
            }
            wit::Event::Custom(custom) => entry.text(&custom.name).json(Some(&custom.value)),
        }
    }

    pub(crate) fn outcome(outcome: &types::Outcome) -> Self {
        Self::of(ENTRY).parts(&outcome.parts).json(outcome.metadata.as_ref())
    }

    fn add(self, bytes: usize, cost: usize) -> Self {
        Self { bytes: self.bytes.saturating_add(bytes), cost: self.cost.saturating_add(cost) }
    }
}

/// Checks that a JSON text does not become a tree that is too large, before it is parsed.
pub(crate) fn check_tree(field: &str, text: &str) -> Result<(), String> {
    match tree(text) {
        0..=MAX_TREE => Ok(()),
        bytes => Err(format!(
            "{field} has so many values that it takes {bytes} bytes in memory; {MAX_TREE} are the most"
        )),
    }
}

/// Returns the number of bytes of a byte of text in JSON.
fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    }
}

/// Returns the size in memory of the values of a JSON text, without their strings. Every value but the first follows a
/// comma or an opening bracket, or the key after it. An empty array or object counts one value too many.
fn tree(text: &str) -> usize {
    let (mut values, mut objects) = (1_usize, 0_usize);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b',' | b'[' => values += 1,
            b'{' => (values, objects) = (values + 1, objects + 1),
            _ => {}
        }
    }
    values.saturating_mul(VALUE).saturating_add(objects.saturating_mul(OBJECT))
}

/// Skips the rest of a string and its closing quote.
fn skip_string(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use talaria_turns::Part;

    use super::*;

    #[test]
    fn the_fixed_parts_cover_what_the_host_holds() {
        assert!(size_of::<Value>() <= VALUE, "{}", size_of::<Value>());
        assert!(size_of::<Part>() <= ITEM, "{}", size_of::<Part>());
        // An entry of a map is a hash, a key and a value; the smallest table has room for three, and for their indexes.
        assert!(3 * (8 + size_of::<String>() + size_of::<Value>()) + 64 <= OBJECT);
    }

    #[test]
    fn a_text_costs_what_it_takes_as_json() {
        for text in ["", "plain ü", "a \"quote\" \\ and\nlines\t\r", "\u{0}\u{1}\u{1f}\u{8}\u{c}\u{7f}"] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(Size::of(0).text(text).cost, json.len() - 2, "{text:?}");
            assert_eq!(Size::of(7).text(text).bytes, text.len());
        }
    }

    #[test]
    fn a_tree_costs_its_values_whatever_is_in_its_strings() {
        for (text, values, objects) in [
            ("0", 1, 0),
            ("[0,0,0]", 4, 0),
            (r#"{"a":1,"b":[2,{"c":3}]}"#, 6, 2),
            (r#""a,b,[{,\",\\""#, 1, 0),
            (r#"["\\",1]"#, 3, 0),
        ] {
            assert_eq!(tree(text), values * VALUE + objects * OBJECT, "{text}");
        }
    }

    #[test]
    fn a_text_that_becomes_a_huge_tree_is_rejected_before_it_is_parsed() {
        let zeros = format!("[{}0]", "0,".repeat(8 << 20));
        let why = check_tree("value", &zeros).unwrap_err();
        assert!(why.starts_with("value has so many values that it takes 671"), "{why}");
        assert_eq!(check_tree("value", &format!("[{}0]", "0,".repeat(800_000))), Ok(()));
        let objects = format!("[{}0]", "{},".repeat(1 << 20));
        assert!(check_tree("value", &objects).is_err(), "an object costs more than a number");
    }
}
