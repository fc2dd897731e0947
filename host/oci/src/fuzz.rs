//! Doors for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! The parsers as a pull calls them. Nothing is checked here: what must hold is said by the targets.

use bytes::Bytes;

use crate::challenge::Challenge;
use crate::layout::{self, Found};
use crate::{Digest, unpack};

/// The address of the server for tokens in a `WWW-Authenticate`, if it names one.
pub fn realm(header: &str) -> Option<String> {
    match Challenge::read(header)? {
        Challenge::Bearer { realm, .. } => Some(realm),
        Challenge::Basic => None,
    }
}

/// What a manifest leads to, with the sizes of layers.
///
/// # Errors
/// As the operator is told.
pub fn manifest(json: &[u8]) -> Result<Vec<(Digest, Option<u64>)>, String> {
    layout::read(json).map(|found| match found {
        Found::Manifest(digest) => vec![(digest, None)],
        Found::Layers(layers) => layers.into_iter().map(|layer| (layer.digest, Some(layer.size))).collect(),
    })
}

/// The component in a layer.
pub fn component(layer: Bytes, most: u64) -> Option<Bytes> {
    unpack::component(&layer, most).ok().flatten()
}
