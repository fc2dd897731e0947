//! Entry points for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! The parsers as a pull calls them. The targets assert what must hold; nothing is checked here.

use bytes::Bytes;

use crate::challenge::Challenge;
use crate::layout::{self, Found};
use crate::{Digest, unpack};

/// The URL of the token server in a `WWW-Authenticate`, if it names one.
pub fn realm(header: &str) -> Option<String> {
    match Challenge::read(header)? {
        Challenge::Bearer { realm, .. } => Some(realm),
        Challenge::Basic => None,
    }
}

/// What a manifest refers to, with the sizes of layers.
///
/// # Errors
/// As the operator sees it.
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
