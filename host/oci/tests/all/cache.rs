//! A component that was pulled once needs no registry again.

use std::fs;

use talaria_fakes::FakeRegistry;
use talaria_oci::{Error, Options};

use crate::{component, options, pull};

#[tokio::test]
async fn a_component_in_the_cache_needs_no_registry() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Options { cache: Some(folder.path().join("oci")), ..options() };
    let offline = Options { offline: true, ..kept.clone() };
    let registry = FakeRegistry::start().await;
    let wasm = component("kept");
    let reference = registry.push(wasm.clone());
    let error = pull(&reference, &offline).await.unwrap_err();
    assert!(matches!(error, Error::Offline { .. }), "{error}");
    assert_eq!(registry.requests().len(), 0, "offline is offline");

    assert_eq!(pull(&reference, &kept).await.unwrap(), wasm);
    assert_eq!(registry.requests().len(), 2);
    drop(registry);
    assert_eq!(pull(&reference, &kept).await.unwrap(), wasm, "the registry is gone");
    assert_eq!(pull(&reference, &offline).await.unwrap(), wasm);
}

#[tokio::test]
async fn a_cached_file_without_its_digest_is_pulled_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("oci");
    let kept = Options { cache: Some(cache.clone()), ..options() };
    let registry = FakeRegistry::start().await;
    let wasm = component("whole");
    let reference = registry.push(wasm.clone());
    pull(&reference, &kept).await.unwrap();
    let files: Vec<_> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "a manifest and a layer, no drafts");
    for spoiled in [b"".as_slice(), b"\0asm\x0d\0\x01\0evil", b"{}", &[0; 100_000]] {
        for file in &files {
            fs::write(file, spoiled).unwrap();
            assert_eq!(pull(&reference, &kept).await.unwrap(), wasm);
        }
    }
    let before = registry.requests().len();
    pull(&reference, &kept).await.unwrap();
    assert_eq!(registry.requests().len(), before, "the repaired files are cached");
}

#[tokio::test]
async fn a_cache_that_cannot_be_written_does_not_fail_the_pull() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    fs::write(&file, "").unwrap();
    let registry = FakeRegistry::start().await;
    let wasm = component("unkept");
    let reference = registry.push(wasm.clone());
    let kept = Options { cache: Some(file.join("oci")), ..options() };
    assert_eq!(pull(&reference, &kept).await.unwrap(), wasm);
}
