//! The tools of a server, as executors are offered them.
//!
//! A tool is called `SERVER__TOOL`. The APIs of models take names of at most 64 letters, digits, `_` and `-`, so other
//! characters become `_`, and longer names are cut. Of two tools that get one name the first counts. Everything is bounded,
//! because it ends up in the prompt of every turn that is granted it: what does not fit is left out with a warning, and the
//! rest is offered.

use std::collections::HashSet;

use serde_json::{Value, json};
use talaria_turns::ToolSpec;

use super::text::{clip, line, visible, visible_value};

/// The most tools of one server. Models choose badly among more than a few dozen.
pub(crate) const TOOLS: usize = 128;
/// The most pages of a list.
pub(crate) const PAGES: usize = 32;
/// The longest name, in bytes.
pub(crate) const NAME: usize = 64;
/// The longest description, in bytes.
pub(crate) const DESCRIPTION: usize = 4 << 10;
/// The longest schema, in bytes.
pub(crate) const SCHEMA: usize = 32 << 10;
/// The most bytes of all descriptions and schemas of one server.
pub(crate) const ALL: usize = 512 << 10;
/// Warnings that are told in words; the rest is counted.
const WARNINGS: usize = 8;

/// Tools that are offered.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<Offered>,
    /// What was left out, and why.
    pub(crate) warnings: Vec<String>,
}

/// A tool that is offered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offered {
    pub(crate) spec: ToolSpec,
    /// Its name on the server.
    pub(crate) remote: String,
}

/// Reads a list, page by page.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    server: &'a str,
    include: Option<&'a [String]>,
    catalogue: Catalogue,
    bytes: usize,
    unsaid: usize,
    cursors: HashSet<String>,
}

// === impl Catalogue ===

impl Catalogue {
    /// The tool that is offered under this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Offered> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(crate) fn new(server: &'a str, include: Option<&'a [String]>) -> Self {
        let (catalogue, cursors) = (Catalogue::default(), HashSet::new());
        Self { server, include, catalogue, bytes: 0, unsaid: 0, cursors }
    }

    /// Adds a page, and returns the cursor of the next one. `Err` if it is no list of tools.
    pub(crate) fn page(&mut self, page: &Value) -> Result<Option<String>, &'static str> {
        let tools = page.get("tools").and_then(Value::as_array).ok_or("the list has no `tools`")?;
        for tool in tools {
            if let Err(why) = self.tool(tool) {
                self.warn(why);
            }
        }
        let Some(cursor) = page.get("nextCursor").and_then(Value::as_str) else { return Ok(None) };
        if self.cursors.len() + 1 == PAGES || !self.cursors.insert(cursor.to_owned()) {
            self.warn("the list goes on for ever, or for too many pages; what follows is left out".into());
            return Ok(None);
        }
        Ok(Some(cursor.to_owned()))
    }

    /// The tools of all pages.
    pub(crate) fn finish(mut self) -> Catalogue {
        for name in self.include.into_iter().flatten() {
            if !self.catalogue.tools.iter().any(|tool| tool.remote == *name) {
                self.warn(format!("`include` names {name:?}, which is not offered"));
            }
        }
        if self.unsaid > 0 {
            self.catalogue.warnings.push(format!("and {} more", self.unsaid));
        }
        self.catalogue
    }

    fn tool(&mut self, tool: &Value) -> Result<(), String> {
        let remote = tool.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let remote = remote.ok_or("a tool has no name")?;
        if self.include.is_some_and(|include| !include.iter().any(|name| name == remote)) {
            return Ok(());
        }
        let shown = line(remote);
        if remote.len() > 4 * NAME {
            return Err(format!("the name {shown:?} is longer than {} bytes", 4 * NAME));
        }
        if self.catalogue.tools.len() == TOOLS {
            return Err(format!("{shown:?} is one more than {TOOLS} tools; choose with `include`"));
        }
        let name = offered_name(self.server, remote);
        if let Some(first) = self.catalogue.named(&name) {
            return Err(format!("{shown:?} would be called {name}, as {:?} is", line(&first.remote)));
        }
        let description = tool.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = clip(&visible(description), DESCRIPTION);
        let input_schema = schema(tool.get("inputSchema")).map_err(|why| format!("{shown:?}: {why}"))?;
        let bytes = description.len() + input_schema.to_string().len();
        if self.bytes + bytes > ALL {
            return Err(format!("{shown:?} does not fit: all descriptions and schemas may take {ALL} bytes"));
        }
        self.bytes += bytes;
        let spec = ToolSpec { name, description, input_schema };
        self.catalogue.tools.push(Offered { spec, remote: remote.to_owned() });
        Ok(())
    }

    fn warn(&mut self, why: String) {
        match self.catalogue.warnings.len() < WARNINGS {
            true => self.catalogue.warnings.push(why),
            false => self.unsaid += 1,
        }
    }
}

/// The name under which a tool is offered.
fn offered_name(server: &str, tool: &str) -> String {
    let plain =
        |char: char| if char.is_ascii_alphanumeric() || matches!(char, '_' | '-') { char } else { '_' };
    prefix(server).chars().chain(tool.chars().map(plain)).take(NAME).collect()
}

/// What the names of all tools of a server begin with, and those of no other.
pub(crate) fn prefix(server: &str) -> String {
    format!("{server}__")
}

/// The schema of a tool's arguments. Models get it as it is, so it must be that of an object.
fn schema(schema: Option<&Value>) -> Result<Value, String> {
    let Some(schema) = schema else { return Ok(json!({ "type": "object" })) };
    if !schema.is_object() || schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("its arguments are not an object".into());
    }
    let mut schema = visible_value(schema);
    if let Value::Object(fields) = &mut schema {
        fields.entry("type").or_insert_with(|| "object".into());
    }
    match schema.to_string().len() {
        bytes if bytes > SCHEMA => {
            Err(format!("its schema is {bytes} bytes long; at most {SCHEMA} are passed on"))
        }
        _ => Ok(schema),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tools: Value) -> Catalogue {
        let mut reader = Reader::new("docs", None);
        assert_eq!(reader.page(&json!({ "tools": tools })), Ok(None));
        reader.finish()
    }

    fn names(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.tools.iter().map(|tool| tool.spec.name.as_str()).collect()
    }

    #[test]
    fn names_are_those_that_models_take_and_unique() {
        let long = "x".repeat(100);
        let catalogue = read(json!([
            { "name": "search" }, { "name": "a.b/c d" }, { "name": "a_b_c d" }, { "name": long }, { "name": "" }, 7
        ]));
        assert_eq!(
            names(&catalogue),
            ["docs__search", "docs__a_b_c_d", &format!("docs__{}", "x".repeat(58))]
        );
        assert_eq!(catalogue.tools[1].remote, "a.b/c d", "the first counts");
        assert_eq!(
            catalogue.warnings,
            [
                "\"a_b_c d\" would be called docs__a_b_c_d, as \"a.b/c d\" is",
                "a tool has no name",
                "a tool has no name"
            ]
        );
    }

    #[test]
    fn a_tool_that_does_not_fit_is_left_out_and_the_rest_is_offered() {
        let large = json!({ "type": "object", "description": "x".repeat(SCHEMA) });
        let catalogue = read(json!([
            { "name": "large", "inputSchema": large },
            { "name": "array", "inputSchema": { "type": "array" } },
            { "name": "text", "inputSchema": "object" },
            { "name": "x".repeat(1000) },
            { "name": "good", "description": "d".repeat(DESCRIPTION + 1), "inputSchema": { "properties": {} } },
        ]));
        assert_eq!(names(&catalogue), ["docs__good"]);
        let good = &catalogue.tools[0].spec;
        assert_eq!(good.description, format!("{}…", "d".repeat(DESCRIPTION)));
        assert_eq!(good.input_schema, json!({ "properties": {}, "type": "object" }));
        assert_eq!(catalogue.warnings.len(), 4, "{:?}", catalogue.warnings);
    }

    #[test]
    fn tools_are_few_and_warnings_too() {
        let tools: Vec<_> = (0..TOOLS + 20).map(|n| json!({ "name": format!("t{n}") })).collect();
        let catalogue = read(json!(tools));
        assert_eq!(catalogue.tools.len(), TOOLS);
        assert_eq!(catalogue.warnings.len(), WARNINGS + 1);
        assert_eq!(catalogue.warnings.last().map(String::as_str), Some("and 12 more"));
        let schema = json!({ "type": "object", "description": "x".repeat(30 << 10) });
        let tools: Vec<_> =
            (0..20).map(|n| json!({ "name": format!("t{n}"), "inputSchema": schema })).collect();
        assert_eq!(read(json!(tools)).tools.len(), 17, "together they may take {ALL} bytes");
    }

    #[test]
    fn only_what_is_included_is_offered() {
        let include = ["b".to_owned(), "gone".to_owned()];
        let mut reader = Reader::new("docs", Some(&include));
        assert_eq!(
            reader.page(&json!({ "tools": [{ "name": "a" }], "nextCursor": "2" })),
            Ok(Some("2".into()))
        );
        assert_eq!(reader.page(&json!({ "tools": [{ "name": "b" }] })), Ok(None));
        let catalogue = reader.finish();
        assert_eq!(names(&catalogue), ["docs__b"]);
        assert_eq!(catalogue.warnings, ["`include` names \"gone\", which is not offered"]);
    }

    #[test]
    fn a_list_without_end_ends() {
        let mut reader = Reader::new("docs", None);
        let same = json!({ "tools": [], "nextCursor": "1" });
        assert_eq!(reader.page(&same), Ok(Some("1".into())));
        assert_eq!(reader.page(&same), Ok(None), "the cursor is one of before");
        let mut reader = Reader::new("docs", None);
        let page = |n: usize| json!({ "tools": [], "nextCursor": n.to_string() });
        let pages = (1..).find(|n| reader.page(&page(*n)) == Ok(None));
        assert_eq!(pages, Some(PAGES));
        assert_eq!(reader.finish().warnings.len(), 1);
        assert_eq!(Reader::new("docs", None).page(&json!({})), Err("the list has no `tools`"));
    }
}
