//! Entry points for the fuzz targets in `tests/fuzz`, the only code that is built with `--cfg fuzzing`: the JSON in the
//! rows of the file, without the file.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use talaria_turns::{Event, StoreError};

use super::read;
use super::write::Change;

/// Encodes events as an append does.
///
/// # Errors
/// Those of an append.
pub fn write(events: &[Event]) -> Result<String, StoreError> {
    let events: Vec<Arc<Event>> = events.iter().cloned().map(Arc::new).collect();
    Change::of(&events, None).map(|change| change.json)
}

/// Decodes the JSON of a row; `None` if it is rejected.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    read::parse(json).ok()
}
