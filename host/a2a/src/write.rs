//! Writing JSON objects field by field, straight from the domain's types into the response's bytes.
//!
//! No intermediate `Value`, no copy of a text, and the order of the fields is the order of the calls.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use talaria_turns::{Metadata, Timestamp};

use crate::operation::REPLY_AS;

/// An object under way.
pub(crate) struct Object<M>(M);

/// A list of what an iterator gives.
pub(crate) struct Seq<I>(pub(crate) I);

/// Bytes, as base64 with padding.
pub(crate) struct Base64<'a>(pub(crate) &'a [u8]);

/// A moment: `2026-11-16T01:52:58.686Z`.
pub(crate) struct Moment(pub(crate) Timestamp);

/// A task's metadata, without what is only between its executor and us.
pub(crate) struct TaskMetadata<'a>(&'a Metadata);

/// A note, as the metadata of a status: `{"talaria/NAME": value}`.
pub(crate) struct NoteOut<'a>(pub(crate) &'a str, pub(crate) &'a Value);

/// Metadata of one member.
pub(crate) struct Mark<T>(pub(crate) &'static str, pub(crate) T);

// === impl Object ===

impl<M: SerializeMap> Object<M> {
    pub(crate) fn begin<S: Serializer<SerializeMap = M>>(serializer: S) -> Result<Self, S::Error> {
        serializer.serialize_map(None).map(Self)
    }

    pub(crate) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), M::Error> {
        self.0.serialize_entry(name, value)
    }

    /// A field that is left out where there is nothing to say.
    pub(crate) fn maybe(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
        value.map_or(Ok(()), |value| self.field(name, &value))
    }

    /// A list that is left out where it is empty.
    pub(crate) fn list(&mut self, name: &str, values: &[impl Serialize]) -> Result<(), M::Error> {
        if values.is_empty() { Ok(()) } else { self.field(name, values) }
    }

    pub(crate) fn end(self) -> Result<M::Ok, M::Error> {
        self.0.end()
    }
}

// === impl the rest ===

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Seq<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'a> TaskMetadata<'a> {
    /// None where nothing is left for the caller.
    pub(crate) fn of(metadata: &'a Metadata) -> Option<Self> {
        metadata.keys().any(|name| name != REPLY_AS).then_some(Self(metadata))
    }
}

impl Serialize for TaskMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().filter(|(name, _)| *name != REPLY_AS))
    }
}

impl<T: Serialize> Serialize for Mark<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field(self.0, &self.1)?;
        object.end()
    }
}

impl Serialize for NoteOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field(&format!("talaria/{}", self.0), self.1)?;
        object.end()
    }
}
