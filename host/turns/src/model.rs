//! The nouns of A2A that every version shares.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// An object with whatever else belongs to a thing.
pub type Metadata = Map<String, Value>;

/// An id from outside: 1 to [`Id::MAX`] bytes, no control characters.
///
/// `K` keeps the ids of tasks, contexts, messages and hooks apart.
pub struct Id<K> {
    text: Box<str>,
    kind: std::marker::PhantomData<fn() -> K>,
}

/// Marks the id of a task.
#[derive(Debug)]
pub enum OfTask {}
/// Marks the id of a context.
#[derive(Debug)]
pub enum OfContext {}
/// Marks the id of a message.
#[derive(Debug)]
pub enum OfMessage {}
/// Marks the id of a hook.
#[derive(Debug)]
pub enum OfHook {}

/// A task's id; made by the host.
pub type TaskId = Id<OfTask>;
/// A context's id; made by the host, or chosen by the caller.
pub type ContextId = Id<OfContext>;
/// A message's id; chosen by its sender.
pub type MessageId = Id<OfMessage>;
/// A hook's id within its task; made by the host, or chosen by the caller.
pub type HookId = Id<OfHook>;

/// Why a text is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// There is nothing in it.
    #[error("must not be empty")]
    Empty,
    /// It is over the bound.
    #[error("must not be longer than {} bytes", Id::<OfTask>::MAX)]
    TooLong,
    /// It would break a log line or a header.
    #[error("must not hold control characters")]
    Control,
}

/// Who a task belongs to: the authenticated caller, or everybody where the host is open.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(Box<str>);

/// A moment, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The caller.
    User,
    /// The agent.
    Agent,
}

/// What a part holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Any JSON value.
    Data(Value),
    /// A file by reference.
    Uri(String),
    /// A file inline.
    #[serde(with = "base64_text")]
    Bytes(Vec<u8>),
}

/// One piece of a message or an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The piece itself.
    pub content: Content,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Whatever else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The sender's id for it.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// Whatever else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the extensions that the message uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Other tasks that it refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<String>,
}

/// A result, or a piece of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its id within the task.
    pub id: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// One sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it holds.
    pub parts: Vec<Part>,
    /// Whatever else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the extensions that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

// === impl Id ===

impl<K> Id<K> {
    /// Longest id, in bytes. Ids are keys and log fields; UUIDs have 36.
    pub const MAX: usize = 256;

    /// A fresh one. Version 7, so that ids made later sort later.
    #[must_use]
    pub fn fresh() -> Self {
        Self::trusted(uuid::Uuid::now_v7().to_string())
    }

    /// A fresh one that knowing others does not help to guess: version 7 counts up within a millisecond.
    #[must_use]
    pub fn unguessable() -> Self {
        Self::trusted(uuid::Uuid::new_v4().to_string())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn trusted(text: impl Into<Box<str>>) -> Self {
        Self { text: text.into(), kind: std::marker::PhantomData }
    }
}

impl<K> FromStr for Id<K> {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() {
            return Err(InvalidId::Empty);
        }
        if text.len() > Self::MAX {
            return Err(InvalidId::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidId::Control);
        }
        Ok(Self::trusted(text))
    }
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, K> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        Self::trusted(self.text.clone())
    }
}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<K> Eq for Id<K> {}

impl<K> std::hash::Hash for Id<K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

// === impl Principal ===

impl Principal {
    /// A named caller.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// Everybody, where the host asks for no token. No named caller can have this name: it is empty.
    #[must_use]
    pub fn anyone() -> Self {
        Self("".into())
    }

    /// The caller's name; none for [`Principal::anyone`].
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&*self.0)
    }
}

// === impl Timestamp ===

impl Timestamp {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// As long before this one.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// From milliseconds since 1970.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }
}

/// RFC 3339, UTC, with milliseconds: `2026-11-16T01:52:58.686Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // humantime prints the years up to 9999 and refuses others; the clamp keeps the promise to print.
        let millis = self.0.min(253_402_300_799_999);
        write!(f, "{}", humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)))
    }
}

// === impl Part ===

impl Part {
    /// A part of plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// A part of any content, with nothing else said about it.
    #[must_use]
    pub fn new(content: Content) -> Self {
        Self { content, media_type: None, filename: None, metadata: None }
    }

    /// Whether it is plain text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_))
    }
}

// === impl Artifact ===

impl Artifact {
    /// One with nothing else said about it.
    #[must_use]
    pub fn new(id: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { id: id.into(), name: None, description: None, parts, metadata: None, extensions: Vec::new() }
    }
}

// === impl Message ===

impl Message {
    /// Something that the agent says.
    #[must_use]
    pub fn agent(parts: Vec<Part>) -> Self {
        Self {
            id: MessageId::fresh(),
            role: Role::Agent,
            parts,
            metadata: None,
            extensions: Vec::new(),
            reference_task_ids: Vec::new(),
        }
    }
}

/// Bytes as text, four characters for three of them.
pub(crate) mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
