//! Encodes JSON objects field by field, straight from the domain's types into the bytes of the response.
//!
//! It builds no intermediate `Value` and copies no text, and fields have the order of the calls.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use talaria_turns::{Metadata, Timestamp, keys};

/// An object that is being written.
pub(crate) struct Object<M>(M);

/// The items of an iterator, as a list.
pub(crate) struct Seq<I>(pub(crate) I);

/// Bytes, as base64 with padding.
pub(crate) struct Base64<'a>(pub(crate) &'a [u8]);

/// A timestamp: `2026-11-16T01:52:58.686Z`.
pub(crate) struct TimestampOut(pub(crate) Timestamp);

/// A task's metadata, without the entries that are not for the caller.
pub(crate) struct TaskMetadata<'a>(&'a Metadata);

/// A note, as the metadata of a status: `{"talaria/NAME": value}`.
pub(crate) struct NoteOut<'a>(pub(crate) &'a str, pub(crate) &'a Value);

/// Metadata with a single entry.
pub(crate) struct MetadataEntry<T>(pub(crate) &'static str, pub(crate) T);

// === impl Object ===

impl<M: SerializeMap> Object<M> {
    pub(crate) fn begin<S: Serializer<SerializeMap = M>>(serializer: S) -> Result<Self, S::Error> {
        serializer.serialize_map(None).map(Self)
    }

    pub(crate) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), M::Error> {
        self.0.serialize_entry(name, value)
    }

    /// Writes a field unless it is `None`.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
        value.map_or(Ok(()), |value| self.field(name, &value))
    }

    /// Writes a list unless it is empty.
    pub(crate) fn list(&mut self, name: &str, values: &[impl Serialize]) -> Result<(), M::Error> {
        if values.is_empty() { Ok(()) } else { self.field(name, values) }
    }

    pub(crate) fn end(self) -> Result<M::Ok, M::Error> {
        self.0.end()
    }
}

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

impl Serialize for TimestampOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'a> TaskMetadata<'a> {
    /// `None` if nothing is left for the caller.
    pub(crate) fn of(metadata: &'a Metadata) -> Option<Self> {
        metadata.keys().any(|name| name != keys::REPLY).then_some(Self(metadata))
    }
}

impl Serialize for TaskMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().filter(|(name, _)| *name != keys::REPLY))
    }
}

impl<T: Serialize> Serialize for MetadataEntry<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field(self.0, &self.1)?;
        object.end()
    }
}

impl Serialize for NoteOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field(&keys::note(self.0), self.1)?;
        object.end()
    }
}
