//! Components from OCI registries.
//!
//! [`pull`] takes a [`Reference`] that names a manifest by its digest, and returns the bytes of the one component in it. It
//! promises that the manifest and the component are those of the digest, whichever server sent them; that a registry which
//! is slow, broken, wrong, huge or gone costs a bounded time and bounded memory; and that a component which was pulled once is
//! on disk and needs no registry again.
//!
//! A pull goes from digest to digest: the manifest (or the index above it), then the layer. Each is taken from the cache if
//! it is there and has its digest, else from the registry, else the pull fails. So an offline host takes no separate path, and
//! a cached component never waits for a registry.
//!
//! Bounds: [`Options::max_bytes`] for a component, packed and unpacked, 4 MiB for a manifest, [`Options::timeout`] for the
//! whole pull, three attempts for each request that fails temporarily, five redirects. Every request goes through `egress`.
//!
//! Deliberately absent: pushing, tags (a tag can be moved to other code after it was reviewed), signatures (the digest is
//! in the operator's own file), and the credential helpers of other programs.

#![forbid(unsafe_code)]

mod cache;
mod challenge;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod layout;
mod reference;
mod registry;
mod unpack;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use talaria_egress::Egress;

pub use error::Error;
pub use reference::{Digest, InvalidReference, Reference};

use cache::Cache;
use layout::{Found, MANIFESTS};
use registry::Registry;

/// The largest manifest, as registries limit it.
const MANIFEST_BYTES: u64 = 4 << 20;
/// How deep indexes may be nested. One is usual, a second is unusual, and a third is a trap.
const INDEXES: usize = 2;

/// How components are pulled.
#[derive(Debug, Clone)]
pub struct Options {
    /// The client that makes the requests.
    pub client: Egress,
    /// The folder of the cache; without one nothing is cached.
    pub cache: Option<PathBuf>,
    /// Whether to use the cache only and call no registry.
    pub offline: bool,
    /// The largest component, both packed and unpacked.
    pub max_bytes: u64,
    /// The longest that a pull may take.
    pub timeout: Duration,
    /// How to access registries, by host, with the port if there is one.
    pub registries: BTreeMap<String, Access>,
}

/// How to access a registry.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The credentials, if the registry needs them.
    pub credentials: Option<Credentials>,
    /// Whether to call it without TLS, as a registry on loopback always is.
    pub insecure: bool,
}

/// A user name and a password, or a token in its place.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password, or the token.
    pub token: SecretString,
}

/// The progress of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the layer received so far.
    pub received: u64,
    /// Bytes of the whole layer.
    pub total: u64,
}

/// Returns the component that a reference names. `report` is called with the progress of a download, a dozen times at most.
///
/// # Errors
/// [`Error`], which names the reference and the fix.
pub async fn pull(
    reference: &Reference,
    options: &Options,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Bytes, Error> {
    let pulled = tokio::time::timeout(options.timeout, component(reference, options, report)).await;
    pulled.unwrap_or(Err(Error::Late { reference: reference.clone(), limit: options.timeout }))
}

async fn component(
    reference: &Reference,
    options: &Options,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Bytes, Error> {
    let registry = Registry::new(reference, options)
        .map_err(|error| Error::Unreachable { reference: reference.clone(), why: error.to_string() })?;
    let mut source =
        Source { reference, offline: options.offline, cache: Cache::new(options.cache.clone()), registry };
    let mut digest = reference.digest().clone();
    let mut depth = 0;
    let layers = loop {
        let manifest = source.manifest(&digest).await?;
        match layout::read(&manifest).map_err(|what| source.odd(what))? {
            Found::Manifest(next) if depth < INDEXES => digest = next,
            Found::Manifest(_) => return Err(source.odd("indexes of indexes of indexes")),
            Found::Layers(layers) => break layers,
        }
        depth += 1;
    };
    let mut component = None;
    for layer in layers {
        if layer.size > options.max_bytes {
            return Err(Error::TooLarge { reference: reference.clone(), most: options.max_bytes });
        }
        let bytes = source.layer(&layer.digest, layer.size, report).await?;
        let most = options.max_bytes;
        let unpacked = tokio::task::spawn_blocking(move || unpack::component(&bytes, most))
            .await
            .map_err(|_| source.odd("it could not be unpacked"))?;
        let found = unpacked.map_err(|error| match error {
            unpack::Error::TooLarge => Error::TooLarge { reference: reference.clone(), most },
            unpack::Error::Odd(what) => source.odd(what),
        })?;
        if let Some(found) = found
            && component.replace(found).is_some()
        {
            return Err(source.odd("more than one .wasm file; push the component by itself"));
        }
    }
    component.ok_or_else(|| source.odd("no .wasm file in its layers"))
}

/// Where manifests and layers come from: the cache, then the registry.
struct Source<'a> {
    reference: &'a Reference,
    offline: bool,
    cache: Cache,
    registry: Registry<'a>,
}

// === impl Source ===

impl Source<'_> {
    async fn manifest(&mut self, digest: &Digest) -> Result<Bytes, Error> {
        let path = format!("manifests/{digest}");
        self.blob(digest, &path, &MANIFESTS.join(", "), MANIFEST_BYTES, None, &|_| ()).await
    }

    async fn layer(
        &mut self,
        digest: &Digest,
        size: u64,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<Bytes, Error> {
        self.blob(digest, &format!("blobs/{digest}"), "*/*", size, Some(size), report).await
    }

    /// Returns the blob of this digest.
    async fn blob(
        &mut self,
        digest: &Digest,
        path: &str,
        accept: &str,
        most: u64,
        size: Option<u64>,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<Bytes, Error> {
        if let Some(bytes) = self.cache.get(digest, most).await {
            return Ok(bytes);
        }
        if self.offline {
            return Err(Error::Offline { reference: self.reference.clone() });
        }
        let bytes = self.registry.content(path, accept, most, size, report).await?;
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(Error::Mismatch {
                reference: self.reference.clone(),
                expected: digest.clone(),
                found,
            });
        }
        self.cache.put(digest, bytes.clone()).await;
        Ok(bytes)
    }

    fn odd(&self, what: impl Into<String>) -> Error {
        Error::Odd { reference: self.reference.clone(), what: what.into() }
    }
}
