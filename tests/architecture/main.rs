//! The invariants of ARCHITECTURE.md that concern the tree rather than its behaviour: which crate may depend on what, which
//! licences come in, which crates may name a product, what is generated from what.
//!
//! A crate of its own and not part of xtask, so that `cargo nextest run -p talaria-architecture` compiles in seconds and the
//! name says where an invariant is enforced. `cargo xtask check` runs it with the tests of every crate.
//!
//! Dependencies are read from `cargo metadata --locked --offline`, for this platform: everything that the tests need has been
//! downloaded to compile them. `deny.toml` repeats licences and duplicates for all platforms and adds security advisories; it
//! runs in the GitHub workflow, because the advisory database must be downloaded.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod arrows;
mod docs;
mod invariants;
mod licences;
mod metadata;
mod products;
mod protos;
mod sources;
mod structure;
mod versions;
mod words;
mod workflows;
