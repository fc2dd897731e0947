//! Why a component could not be pulled.

use std::time::Duration;

use crate::reference::{Digest, Reference};

/// Why a component could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not in the cache, and registries are not called.
    #[error("{reference} is not in the cache, and `oci.offline` is set; pull it once without")]
    Offline {
        /// The component to pull.
        reference: Reference,
    },
    /// The registry does not have it, or does not show it to us.
    #[error("{} has no {reference}; check the name and the digest", reference.registry())]
    NotFound {
        /// The component to pull.
        reference: Reference,
    },
    /// The registry asks for credentials, or rejects them.
    #[error(
        "{} does not let us pull {reference}: {why}; set `[oci.registry.\"{}\"]` with `username` and `token`",
        reference.registry(), reference.registry()
    )]
    Denied {
        /// The component to pull.
        reference: Reference,
        /// The reason.
        why: String,
    },
    /// The registry cannot be reached, or its response cannot be used.
    #[error("{reference} could not be pulled: {why}")]
    Unreachable {
        /// The component to pull.
        reference: Reference,
        /// The reason of the last attempt.
        why: String,
    },
    /// The pull took too long.
    #[error("{reference} could not be pulled within {}s; set `oci.timeout`", limit.as_secs())]
    Late {
        /// The component to pull.
        reference: Reference,
        /// The bound.
        limit: Duration,
    },
    /// The registry sent other content.
    #[error("{} answered with something else for {reference}: {found} where {expected} was asked for", reference.registry())]
    Mismatch {
        /// The component to pull.
        reference: Reference,
        /// The digest that was asked for.
        expected: Digest,
        /// The digest of what was received.
        found: Digest,
    },
    /// It is larger than allowed.
    #[error("{reference} is larger than {most} bytes; set `oci.max_size`")]
    TooLarge {
        /// The component to pull.
        reference: Reference,
        /// The bound.
        most: u64,
    },
    /// It holds no component, or several.
    #[error("{reference} holds no component: {what}")]
    Odd {
        /// The component to pull.
        reference: Reference,
        /// What it holds instead.
        what: String,
    },
}
