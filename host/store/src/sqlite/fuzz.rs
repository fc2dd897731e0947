//! Doors for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`: the JSON in the file's rows,
//! without the file.

use serde::de::DeserializeOwned;
use talaria_turns::{Event, StoreError};

use super::read;
use super::write::Change;

/// Events as they are written.
///
/// # Errors
/// As an append has it.
pub fn write(events: &[Event]) -> Result<String, StoreError> {
    Change::of(events, None).map(|change| change.json)
}

/// What is read from a row; none where it is refused.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    read::parse(json).ok()
}
