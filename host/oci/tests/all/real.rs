//! The usual registry, as Debian packages it. `cargo xtask prepare` installs it; the test fails without.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use serde_json::json;
use talaria_egress::{Access, Config, Egress, Request, Response};
use talaria_oci::{Digest, Error};

use crate::{component, options, pull};

/// A running `docker-registry`. Killed when dropped.
struct Registry {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that `cargo xtask prepare` installs.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap_or(Path::new("target"));
    let program = target.join("docker-registry/usr/bin/docker-registry");
    program.is_file().then_some(program)
}

impl Registry {
    fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yml");
        let store = folder.path().join("store");
        let text = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            store.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(program);
        command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = said.next().expect("it says where it listens").unwrap();
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split(['"', ' ', ',']).next().unwrap().to_owned();
            }
        };
        // Keep reading, or the registry would block on a full pipe.
        std::thread::spawn(move || said.for_each(drop));
        Self { child, url: format!("http://{address}"), _folder: folder }
    }

    async fn ask(&self, method: &str, url: &str, media_type: &str, body: Bytes) -> Response {
        let access =
            Access { patterns: vec![format!("* {}/*", self.url).parse().unwrap()], ..Access::default() };
        let request = Request {
            method: method.into(),
            url: url.into(),
            headers: vec![("content-type".into(), media_type.into())],
            body,
            ..Request::default()
        };
        Egress::new(Config::default()).fetch(&access, request).await.unwrap()
    }

    async fn blob(&self, bytes: Bytes) -> Digest {
        let digest = Digest::of(&bytes);
        let begun =
            self.ask("POST", &format!("{}/v2/acme/agent/blobs/uploads/", self.url), "", Bytes::new()).await;
        let location = begun.headers.iter().find(|(name, _)| name == "location").unwrap().1.clone();
        let put = format!("{location}&digest={digest}");
        assert_eq!(self.ask("PUT", &put, "application/octet-stream", bytes).await.status, 201);
        digest
    }
}

#[tokio::test]
async fn a_component_comes_from_a_real_registry() {
    let program = program().expect("docker-registry is not installed; run `cargo xtask prepare`");
    let registry = Registry::start(&program);
    let wasm = component(&"real".repeat(100_000));
    let layer = registry.blob(wasm.clone()).await;
    let config = registry.blob(Bytes::from_static(b"{}")).await;
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": config.to_string(), "size": 2 },
        "layers": [{ "mediaType": "application/wasm", "digest": layer.to_string(), "size": wasm.len() }],
    });
    let manifest = Bytes::from(manifest.to_string());
    let digest = Digest::of(&manifest);
    let url = format!("{}/v2/acme/agent/manifests/v1", registry.url);
    let put = registry.ask("PUT", &url, media_type, manifest).await;
    assert_eq!(put.status, 201, "{}", String::from_utf8_lossy(&put.body));

    let host = registry.url.trim_start_matches("http://");
    let reference = format!("oci://{host}/acme/agent:v1@{digest}");
    assert_eq!(pull(&reference, &options()).await.unwrap(), wasm);
    let missing = format!("oci://{host}/acme/agent@sha256:{}", "0".repeat(64));
    assert!(matches!(pull(&missing, &options()).await, Err(Error::NotFound { .. })));
}
