//! Every form in which a component is stored in a registry.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use talaria_fakes::FakeRegistry;
use talaria_oci::Error;

use crate::{component, options, pull};

fn image(files: &[(&str, &[u8])]) -> Bytes {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&archive.into_inner().unwrap()).unwrap();
    gzip.finish().unwrap().into()
}

const TAR: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

#[tokio::test]
async fn finds_the_component_in_artifacts_of_all_tools_and_in_images() {
    let registry = FakeRegistry::start().await;
    let wasm = component("a");
    for media_type in [
        "application/wasm",
        "application/vnd.wasm.content.layer.v1+wasm",
        "application/vnd.module.wasm.content.layer.v1+wasm",
        "application/octet-stream",
    ] {
        let reference = registry.push_layers([(media_type, wasm.clone())]);
        assert_eq!(pull(&reference, &options()).await.unwrap(), wasm, "{media_type}");
    }
    let base = image(&[("etc/os-release", b"none")]);
    let top = image(&[("README", b"read"), ("app/agent.wasm", &wasm)]);
    let reference = registry.push_layers([(TAR, base), (TAR, top)]);
    assert_eq!(pull(&reference, &options()).await.unwrap(), wasm);
}

#[tokio::test]
async fn an_index_leads_to_its_manifest() {
    let registry = FakeRegistry::start().await;
    let wasm = component("in an index");
    let manifest = registry.push(wasm.clone());
    let digest = manifest.split_once('@').unwrap().1;
    let entry = |digest: &str, os: &str, architecture: &str| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 7,
            "platform": { "os": os, "architecture": architecture },
        })
    };
    let other = format!("sha256:{}", "0".repeat(64));
    let index = |entries: serde_json::Value| {
        registry.push_manifest(&json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries,
        }))
    };
    let one = index(json!([entry(&other, "linux", "amd64"), entry(digest, "wasip2", "wasm")]));
    assert_eq!(pull(&one, &options()).await.unwrap(), wasm);
    let mut deep = one;
    for _ in 0..2 {
        deep = index(json!([entry(deep.split_once('@').unwrap().1, "wasip2", "wasm")]));
    }
    assert!(matches!(pull(&deep, &options()).await, Err(Error::Odd { .. })), "indexes are nested too deeply");
}

#[tokio::test]
async fn an_artifact_without_one_component_is_an_error() {
    let registry = FakeRegistry::start().await;
    let wasm = component("a");
    for (layers, said) in [
        (vec![("application/wasm", wasm.clone()), ("application/wasm", component("b"))], "2 components"),
        (vec![(TAR, image(&[("a.wasm", &wasm)])), (TAR, image(&[("b.wasm", &wasm)]))], "more than one .wasm"),
        (vec![(TAR, image(&[("a.txt", b"a")]))], "no .wasm file"),
        (vec![("text/plain", Bytes::from("words".repeat(200)))], "neither WebAssembly nor a tar"),
        (vec![], "0 layers"),
    ] {
        let error = pull(&registry.push_layers(layers), &options()).await.unwrap_err();
        assert!(matches!(error, Error::Odd { .. }) && error.to_string().contains(said), "{said}: {error}");
    }
}
