//! How a component is stored in a registry, in all forms that common tools push.
//!
//! | pushed by | layers |
//! |---|---|
//! | `wkg`, `oras` (the CNCF's wasm artifact) | one `application/wasm` |
//! | `wash`, `spin`, older tools | one `application/vnd.wasm.content.layer.v1+wasm` or `application/vnd.module.wasm.content.layer.v1+wasm` |
//! | `docker build`, `buildah` | one or more `tar`, mostly gzipped, with one `.wasm` file among all |
//!
//! An index lists several platforms: the entry for WebAssembly is used, or the only one.

use serde::Deserialize;

use crate::reference::Digest;

/// The media types of manifests, for `Accept`.
pub(crate) const MANIFESTS: [&str; 4] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// The most layers of an image with a component; base images have a dozen.
const LAYERS: usize = 64;

/// What a manifest refers to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Another manifest.
    Manifest(Digest),
    /// Layers, one of which holds the component.
    Layers(Vec<Layer>),
}

/// A layer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    #[serde(default)]
    schema_version: u64,
    #[serde(default)]
    layers: Vec<Descriptor>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// Parses a manifest or an index. The error completes "holds no component: ".
pub(crate) fn read(json: &[u8]) -> Result<Found, String> {
    let manifest: Manifest = serde_json::from_slice(json).map_err(|_| "its manifest cannot be read")?;
    if manifest.schema_version != 2 {
        return Err("its manifest is not of version 2".into());
    }
    match manifest.manifests {
        Some(entries) => entry(&entries).map(Found::Manifest),
        None => layers(&manifest.layers).map(Found::Layers),
    }
}

fn entry(entries: &[Descriptor]) -> Result<Digest, String> {
    let rank = |entry: &&Descriptor| {
        let platform = entry.platform.as_ref();
        let (os, architecture) =
            platform.map_or(("", ""), |platform| (platform.os.as_str(), platform.architecture.as_str()));
        match (architecture, os) {
            ("wasm" | "wasm32", "wasip2") => 0,
            ("wasm" | "wasm32", "wasi" | "wasip1") => 1,
            ("wasm" | "wasm32", _) => 2,
            (_, "wasip2" | "wasip1" | "wasi") => 3,
            // Attestations are listed beside images under this name.
            ("unknown", "unknown") => 5,
            _ => 4,
        }
    };
    let best = entries.iter().min_by_key(rank).filter(|best| rank(best) < 4);
    let mut others = entries.iter().filter(|entry| rank(entry) == 4);
    let chosen = match (best, others.next(), others.next()) {
        (Some(best), ..) => best,
        (None, Some(only), None) => only,
        _ => return Err("its index has no entry for WebAssembly".into()),
    };
    digest(chosen)
}

fn layers(layers: &[Descriptor]) -> Result<Vec<Layer>, String> {
    let layer = |layer: &Descriptor| Ok(Layer { digest: digest(layer)?, size: layer.size });
    let wasm: Vec<&Descriptor> = layers.iter().filter(|layer| is_wasm(&layer.media_type)).collect();
    match wasm.as_slice() {
        [one] => return Ok(vec![layer(one)?]),
        [] => {}
        more => return Err(format!("{} components; push the one that is meant by itself", more.len())),
    }
    if layers.is_empty() || layers.len() > LAYERS {
        return Err(format!("{} layers", layers.len()));
    }
    // A single layer of any type may be the file itself.
    if layers.len() > 1
        && let Some(odd) = layers.iter().find(|layer| !is_archive(&layer.media_type))
    {
        return Err(format!("a layer of type {:?}, which is neither WebAssembly nor a tar", odd.media_type));
    }
    layers.iter().map(layer).collect()
}

fn digest(descriptor: &Descriptor) -> Result<Digest, String> {
    descriptor.digest.parse().map_err(|_| "a digest in its manifest is no SHA-256".into())
}

fn is_wasm(media_type: &str) -> bool {
    media_type == "application/wasm"
        || (media_type.starts_with("application/vnd.") && media_type.ends_with("+wasm"))
}

fn is_archive(media_type: &str) -> bool {
    let kind = media_type.rsplit(['.', '+']).next().unwrap_or_default();
    matches!(kind, "tar" | "gzip")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hash(name: &str) -> String {
        Digest::of(name.as_bytes()).to_string()
    }

    fn descriptor(media_type: &str, name: &str) -> Value {
        json!({ "mediaType": media_type, "digest": hash(name), "size": 7 })
    }

    fn found(manifest: &Value) -> Result<Vec<String>, String> {
        read(manifest.to_string().as_bytes()).map(|found| match found {
            Found::Manifest(digest) => vec![format!("manifest {digest}")],
            Found::Layers(layers) => layers.iter().map(|layer| layer.digest.to_string()).collect(),
        })
    }

    #[test]
    fn the_layer_of_a_wasm_type_is_the_component() {
        for media_type in [
            "application/wasm",
            "application/vnd.wasm.content.layer.v1+wasm",
            "application/vnd.module.wasm.content.layer.v1+wasm",
        ] {
            let config = descriptor("application/vnd.wasm.config.v0+json", "config");
            let readme = descriptor("text/markdown", "readme");
            let layers = json!([readme, descriptor(media_type, "wasm")]);
            let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
            assert_eq!(found(&manifest), Ok(vec![hash("wasm")]), "{media_type}");
        }
        let two = json!([descriptor("application/wasm", "a"), descriptor("application/wasm", "b")]);
        assert!(
            found(&json!({ "schemaVersion": 2, "layers": two })).unwrap_err().starts_with("2 components")
        );
    }

    #[test]
    fn an_image_yields_all_its_layers() {
        let tar = "application/vnd.oci.image.layer.v1.tar";
        let gzip = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let layers = json!([descriptor(tar, "a"), descriptor(gzip, "b"), descriptor("x.tar+gzip", "c")]);
        let manifest = json!({ "schemaVersion": 2, "layers": layers });
        assert_eq!(found(&manifest), Ok(vec![hash("a"), hash("b"), hash("c")]));
        let odd =
            json!([descriptor(tar, "a"), descriptor("application/vnd.oci.image.layer.v1.tar+zstd", "b")]);
        assert!(found(&json!({ "schemaVersion": 2, "layers": odd })).unwrap_err().contains("tar+zstd"));
        let one = json!([descriptor("application/octet-stream", "a")]);
        assert_eq!(found(&json!({ "schemaVersion": 2, "layers": one })), Ok(vec![hash("a")]));
    }

    #[test]
    fn of_an_index_the_entry_for_webassembly_is_used() {
        let entry = |os: &str, architecture: &str, name: &str| {
            let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", name);
            entry["platform"] = json!({ "os": os, "architecture": architecture });
            entry
        };
        let index = |entries: Value| found(&json!({ "schemaVersion": 2, "manifests": entries }));
        let manifest = |name: &str| Ok(vec![format!("manifest {}", hash(name))]);
        let linux = || entry("linux", "amd64", "linux");
        let proof = || entry("unknown", "unknown", "proof");
        assert_eq!(
            index(json!([linux(), entry("wasip1", "wasm", "old"), entry("wasip2", "wasm", "new")])),
            manifest("new")
        );
        assert_eq!(index(json!([linux(), entry("wasi", "wasm", "wasm")])), manifest("wasm"));
        assert_eq!(
            index(json!([linux(), proof()])),
            manifest("linux"),
            "the only one that is not an attestation"
        );
        assert_eq!(index(json!([descriptor("x", "bare")])), manifest("bare"));
        assert!(index(json!([linux(), entry("linux", "arm64", "arm")])).is_err());
        assert!(index(json!([])).is_err());
    }

    #[test]
    fn rejects_what_is_not_a_manifest() {
        for json in ["", "{}", "[]", "{\"schemaVersion\":1}", "{\"schemaVersion\":2,\"layers\":[{}]}"] {
            assert!(read(json.as_bytes()).is_err(), "{json}");
        }
        assert!(found(&json!({ "schemaVersion": 2, "layers": [] })).is_err());
        let bad = json!([{ "mediaType": "application/wasm", "digest": "sha256:../../x", "size": 1 }]);
        assert!(found(&json!({ "schemaVersion": 2, "layers": bad })).unwrap_err().contains("digest"));
    }
}
