//! Pulls from a registry on loopback that behaves, or misbehaves, as the test says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod cache;
mod credentials;
mod layouts;
mod real;
mod trouble;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use talaria_egress::{Config, Egress};
use talaria_fakes::soon;
use talaria_oci::{Error, Options, Progress};

/// The head of a component, followed by a text that makes it unique.
fn component(name: &str) -> Bytes {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    bytes.extend_from_slice(name.as_bytes());
    bytes.into()
}

fn options() -> Options {
    Options {
        client: Egress::new(Config::default()),
        cache: None,
        offline: false,
        max_bytes: 1 << 20,
        timeout: Duration::from_secs(25),
        registries: BTreeMap::new(),
    }
}

async fn pull(reference: &str, options: &Options) -> Result<Bytes, Error> {
    pull_with_progress(reference, options, &|_| ()).await
}

async fn pull_with_progress(
    reference: &str,
    options: &Options,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Bytes, Error> {
    let reference = reference.parse().unwrap();
    soon("the pull ends", talaria_oci::pull(&reference, options, report)).await
}
