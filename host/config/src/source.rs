//! A configuration file as text: read within bounds, parsed strictly, every mistake reported with its place.
//!
//! `toml` gives the place, `serde_path_to_error` the key, serde the reason; [`explain`] combines them into one line with the
//! nearest valid name. For a mistake that is found later (a variable that is not set, a default executor that does not
//! exist), [`Source::at`] looks the key up in the text again.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::schema::{self, Key};

/// The largest configuration file: far more than anybody writes, and little memory.
const LARGEST: u64 = 1024 * 1024;

/// The start of serde's message about an unknown key.
const UNKNOWN_KEY: &str = "unknown field ";

/// A mistake in the configuration: its place, and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}")]
pub struct ConfigError {
    place: Place,
    problem: String,
}

/// The place of a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// In a file, with line and column if known.
    File(PathBuf, Option<(usize, usize)>),
    /// In an environment variable.
    Variable(String),
    /// In a flag.
    Flag(&'static str),
    /// Nowhere in particular: the combination is inconsistent.
    Nowhere,
}

/// A mistake in the value of a key, not located yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, in full: `a2a.auth.tokens[0].token`.
    pub key: String,
    /// What is wrong and how to fix it.
    pub what: String,
}

/// The text of a file, and its name.
#[derive(Debug, Clone)]
pub struct Source {
    path: PathBuf,
    text: String,
}

// === impl Source ===

impl Source {
    /// Reads a file; `None` if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let fail = |problem: String| ConfigError { place: Place::File(path.to_owned(), None), problem };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(format!("cannot be read: {error}"))),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > LARGEST {
            return Err(fail("is larger than 1 MiB; this is no configuration file".into()));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = error
                .as_bytes()
                .iter()
                .take(error.utf8_error().valid_up_to())
                .filter(|b| **b == b'\n')
                .count()
                + 1;
            ConfigError {
                place: Place::File(path.to_owned(), Some((line, 1))),
                problem: "is not UTF-8 text".into(),
            }
        })?;
        Ok(Some(Self { path: path.to_owned(), text }))
    }

    /// Wraps a text that was read elsewhere.
    pub fn of(path: PathBuf, text: &str) -> Self {
        Self { path, text: text.to_owned() }
    }

    /// The path of the file, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The folder that relative paths in the file start from.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new(""))
    }

    /// Parses the file. An unknown key that `T` has in another section is reported with that section.
    pub fn parse<T: DeserializeOwned + JsonSchema>(&self) -> Result<T, ConfigError> {
        self.parse_knowing(schema::keys::<T>)
    }

    /// Parses a file that has no schema.
    pub fn parse_without_schema<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        self.parse_knowing(Vec::new)
    }

    fn parse_knowing<T: DeserializeOwned>(&self, keys: fn() -> Vec<Key>) -> Result<T, ConfigError> {
        let fail = |start: Option<usize>, problem: String| ConfigError {
            place: Place::File(self.path.clone(), start.map(|start| self.line_and_column(start))),
            problem,
        };
        let document = toml::Deserializer::parse(&self.text).map_err(|error| {
            fail(error.span().map(|span| span.start), format!("not valid TOML: {}", error.message()))
        })?;
        serde_path_to_error::deserialize(document).map_err(|error| {
            let path = error.path().to_string();
            let error = error.into_inner();
            let mut start = error.span().map(|span| span.start);
            // serde reports the span of the whole list for an element, while the path names the element. For an unknown key
            // the span is that of its name, which is the better place.
            if let (true, Some(found)) = self.find(&path)
                && !error.message().starts_with(UNKNOWN_KEY)
            {
                start = start.max(Some(found));
            }
            fail(start, explain(&path, error.message(), keys))
        })
    }

    /// Locates a problem: at the value of its key, else at the nearest enclosing table in the file.
    pub fn at(&self, problem: Problem) -> ConfigError {
        let (_, start) = self.find(&problem.key);
        let place = start.map(|start| self.line_and_column(start));
        ConfigError {
            place: Place::File(self.path.clone(), place),
            problem: format!("`{}`: {}", problem.key, problem.what),
        }
    }

    /// The start of a key's value, or of the last enclosing table that exists; `true` for the former.
    fn find(&self, key: &str) -> (bool, Option<usize>) {
        let Ok(document) = DeTable::parse(&self.text) else { return (false, None) };
        let mut value = &DeValue::Table(document.into_inner());
        let mut start = None;
        for step in key.split(['.', '[']) {
            let next = match step.strip_suffix(']') {
                Some(index) => index.parse::<usize>().ok().and_then(|index| value.get(index)),
                None => value.get(step),
            };
            let Some(next) = next else { return (false, start) };
            start = Some(next.span().start);
            value = next.get_ref();
        }
        (true, start)
    }

    /// Line and column, both from 1; the column counts characters.
    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// A mistake in an environment variable.
    pub fn variable(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: Place::Variable(name.into()), problem: problem.into() }
    }

    /// A mistake at a key without a place.
    pub fn key(key: impl Into<String>, what: impl Into<String>) -> Self {
        Problem { key: key.into(), what: what.into() }.into()
    }

    /// A mistake in a flag.
    pub fn flag(name: &'static str, problem: impl Into<String>) -> Self {
        Self { place: Place::Flag(name), problem: problem.into() }
    }

    /// A file that cannot be used.
    pub fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self { place: Place::File(path.to_owned(), None), problem: problem.into() }
    }
}

/// Without a file, the key is the place.
impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { place: Place::Nowhere, problem: format!("`{}`: {}", problem.key, problem.what) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, Some((line, column))) => write!(f, "{}:{line}:{column}: ", path.display()),
            Self::File(path, None) => write!(f, "{}: ", path.display()),
            Self::Variable(name) => write!(f, "environment variable `{name}`: "),
            Self::Flag(name) => write!(f, "`{name}`: "),
            Self::Nowhere => Ok(()),
        }
    }
}

// === explaining ===

/// Rewords serde's message.
fn explain(path: &str, message: &str, keys: fn() -> Vec<Key>) -> String {
    if let Some((name, known)) = unknown(message, UNKNOWN_KEY) {
        // The path of an enum ends above the key; that of a struct includes it.
        let key = match path == name || path.ends_with(&format!(".{name}")) {
            true => path.to_owned(),
            false => format!("{path}.{name}"),
        };
        return match nearest(name, known.iter().copied()) {
            Some(near) => {
                format!("unknown key `{key}`; did you mean `{near}`? (known: {})", known.join(", "))
            }
            None => match elsewhere(name, keys()) {
                Some(home) => {
                    format!("unknown key `{key}`; did you mean `{home}`? (known here: {})", known.join(", "))
                }
                None => format!("unknown key `{key}` (known: {})", known.join(", ")),
            },
        };
    }
    if let Some((value, known)) = unknown(message, "unknown variant ") {
        let quoted: Vec<_> = known.iter().map(|name| format!("\"{name}\"")).collect();
        let hint = nearest(value, known.iter().copied()).map(|near| format!("; did you mean \"{near}\"?"));
        return format!(
            "`{path}`: unknown value \"{value}\"{} (known: {})",
            hint.unwrap_or_default(),
            quoted.join(", ")
        );
    }
    if let Some(name) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("`{path}` lacks the key `{name}`");
    }
    match path {
        "." => message.to_owned(),
        _ => format!("`{path}`: {message}"),
    }
}

/// Splits serde's "unknown field `x`, expected one of `a`, `b`". Tests fail if serde changes that form.
fn unknown<'a>(message: &'a str, what: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut names = message.strip_prefix(what)?.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// The most similar of some names, if it is similar enough to be meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    let likeness = |known: &str| {
        let known = known.replace('-', "_");
        // One typo (a letter added, missing, wrong, or two swapped) always counts; otherwise 0.8, which allows more typos in
        // longer words.
        match strsim::osa_distance(&name, &known) {
            0..=1 => 1.0,
            _ => strsim::jaro_winkler(&name, &known),
        }
    };
    known
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// A key of that name in another section, in full.
fn elsewhere(name: &str, keys: Vec<Key>) -> Option<String> {
    keys.into_iter().map(|key| key.path).find(|path| path.rsplit('.').next() == Some(name))
}
