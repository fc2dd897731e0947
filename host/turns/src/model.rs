//! The data types of A2A that all its versions share.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A JSON object for additional values.
pub type Metadata = Map<String, Value>;

/// An id from outside: 1 to [`Id::MAX`] bytes without control characters. Cheap to clone.
///
/// `K` keeps the ids of tasks, contexts, messages and push configurations apart.
pub struct Id<K> {
    text: Arc<str>,
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
/// Marks the id of a push configuration.
#[derive(Debug)]
pub enum OfPushConfig {}

/// The id of a task; made by the host.
pub type TaskId = Id<OfTask>;
/// The id of a context; made by the host or chosen by the caller.
pub type ContextId = Id<OfContext>;
/// The id of a message; chosen by its sender.
pub type MessageId = Id<OfMessage>;
/// The id of a push configuration within its task; made by the host or chosen by the caller.
pub type PushConfigId = Id<OfPushConfig>;

/// Why a text is not a valid id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is longer than [`Id::MAX`].
    #[error("must not be longer than {} bytes", Id::<OfTask>::MAX)]
    TooLong,
    /// The text has control characters, which would break a log line or a header.
    #[error("must not hold control characters")]
    Control,
}

/// The owner of a task: an authenticated caller, or everybody if the host is open. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(Option<Arc<str>>);

/// A point in time, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The caller.
    User,
    /// The agent.
    Agent,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// A JSON value.
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
    /// The content.
    pub content: Content,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Additional values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The id that its sender chose.
    pub id: MessageId,
    /// The sender.
    pub role: Role,
    /// The content.
    pub parts: Vec<Part>,
    /// Additional values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the extensions that the message uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Other tasks that the message refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<String>,
}

/// A result of a task, or a piece of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The id within the task.
    pub id: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A sentence about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content.
    pub parts: Vec<Part>,
    /// Additional values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the extensions that the artifact uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

// === impl Id ===

impl<K> Id<K> {
    /// The longest id, in bytes. Ids are keys and log fields; a UUID has 36.
    pub const MAX: usize = 256;

    /// Makes a new id: a UUID of version 7, so that newer ids sort after older ones.
    #[must_use]
    pub fn fresh() -> Self {
        Self::of_uuid(uuid::Uuid::now_v7())
    }

    /// Makes a new id that cannot be guessed from others. UUIDs of version 7 can: they count up within a millisecond.
    #[must_use]
    pub fn unguessable() -> Self {
        Self::of_uuid(uuid::Uuid::new_v4())
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn of_uuid(uuid: uuid::Uuid) -> Self {
        let mut buffer = uuid::Uuid::encode_buffer();
        Self::trusted(&*uuid.hyphenated().encode_lower(&mut buffer))
    }

    fn trusted(text: impl Into<Arc<str>>) -> Self {
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
        Self { text: Arc::clone(&self.text), kind: std::marker::PhantomData }
    }
}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<K> Eq for Id<K> {}

impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

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
    /// The caller of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self((!name.is_empty()).then(|| name.into()))
    }

    /// Everybody, on a host that asks for no token. Its name is empty, which no named caller's is.
    #[must_use]
    pub fn anyone() -> Self {
        Self(None)
    }

    /// Returns the caller's name; `None` for [`Principal::anyone`].
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

// === impl Timestamp ===

impl Timestamp {
    /// The current time.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// The time that lies this long before.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time this many milliseconds after the start of 1970.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the start of 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }
}

/// RFC 3339 in UTC, with milliseconds: `2026-11-16T01:52:58.686Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // humantime fails for years after 9999, and `Display` must not fail.
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

    /// A part with this content and no other field set.
    #[must_use]
    pub fn new(content: Content) -> Self {
        Self { content, media_type: None, filename: None, metadata: None }
    }

    /// Whether the part is plain text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_))
    }
}

// === impl Artifact ===

impl Artifact {
    /// An artifact with these parts and no other field set.
    #[must_use]
    pub fn new(id: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { id: id.into(), name: None, description: None, parts, metadata: None, extensions: Vec::new() }
    }
}

// === impl Message ===

impl Message {
    /// A message of the agent, with a new id.
    #[must_use]
    pub fn agent(parts: Vec<Part>) -> Self {
        Self::of_agent(MessageId::fresh(), parts)
    }

    /// The answer of a task as a message. The id is derived from the task's, so that it is the same each time.
    #[must_use]
    pub(crate) fn reply(task: &TaskId, parts: Vec<Part>) -> Self {
        let id = format!("reply-{task}").parse().unwrap_or_else(|_| MessageId::fresh());
        Self::of_agent(id, parts)
    }

    fn of_agent(id: MessageId, parts: Vec<Part>) -> Self {
        Self {
            id,
            role: Role::Agent,
            parts,
            metadata: None,
            extensions: Vec::new(),
            reference_task_ids: Vec::new(),
        }
    }
}

/// Stores bytes as base64 text.
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
