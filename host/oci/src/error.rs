//! Why a component could not be pulled.

use std::time::Duration;

use crate::reference::{Digest, Reference};

/// Why a component could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No registry may be asked, and it is not in the cache.
    #[error("{reference} is not in the cache, and `oci.offline` is set; pull it once without")]
    Offline {
        /// What was to be pulled.
        reference: Reference,
    },
    /// The registry does not have it, or does not say so to us.
    #[error("{} has no {reference}; check the name and the digest", reference.registry())]
    NotFound {
        /// What was to be pulled.
        reference: Reference,
    },
    /// The registry wants to know who asks, or does not let them.
    #[error(
        "{} does not let us pull {reference}: {why}; set `[oci.registry.\"{}\"]` with `username` and `token`",
        reference.registry(), reference.registry()
    )]
    Denied {
        /// What was to be pulled.
        reference: Reference,
        /// What it said.
        why: String,
    },
    /// The registry cannot be reached, or breaks off.
    #[error("{reference} could not be pulled: {why}")]
    Unreachable {
        /// What was to be pulled.
        reference: Reference,
        /// The last try's reason.
        why: String,
    },
    /// It took too long.
    #[error("{reference} could not be pulled within {}s; set `oci.timeout`", limit.as_secs())]
    Late {
        /// What was to be pulled.
        reference: Reference,
        /// The bound.
        limit: Duration,
    },
    /// What came is something else.
    #[error("{} answered with something else for {reference}: {found} where {expected} was asked for", reference.registry())]
    Mismatch {
        /// What was to be pulled.
        reference: Reference,
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// It is larger than allowed.
    #[error("{reference} is larger than {most} bytes; set `oci.max_size`")]
    TooLarge {
        /// What was to be pulled.
        reference: Reference,
        /// The bound.
        most: u64,
    },
    /// It holds no component, or not one.
    #[error("{reference} holds no component: {what}")]
    Odd {
        /// What was to be pulled.
        reference: Reference,
        /// What is there instead.
        what: String,
    },
}
