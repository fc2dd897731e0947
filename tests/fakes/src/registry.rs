//! A fake OCI registry, for pulls only, that can be scripted to misbehave.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::gateway::{FakeGateway, Recorded};
use crate::reply::Reply;

/// The only repository.
const NAME: &str = "acme/agent";
/// The token that its token server issues.
const TOKEN: &str = "token-of-the-fake-registry";

/// A registry on loopback. Dropping it closes its port.
pub struct FakeRegistry {
    server: FakeGateway,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    content: Mutex<HashMap<String, (String, Bytes)>>,
    account: Mutex<Option<(String, String)>>,
    spoiled: Mutex<Option<Box<Spoil>>>,
}

type Spoil = dyn Fn(&Recorded) -> Option<Reply> + Send;

// === impl FakeRegistry ===

impl FakeRegistry {
    /// Starts an empty registry that anybody may pull from.
    pub async fn start() -> Self {
        let state = Arc::new(State::default());
        let answering = Arc::clone(&state);
        let server = FakeGateway::start(move |request| answering.answer(request)).await;
        Self { server, state }
    }

    /// The host and port.
    #[must_use]
    pub fn host(&self) -> String {
        self.server.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned()
    }

    /// Adds a component in the CNCF's artifact format. Returns its reference.
    pub fn push(&self, component: impl Into<Bytes>) -> String {
        self.push_layers([("application/wasm", component.into())])
    }

    /// Adds a manifest with these layers. Returns its reference.
    pub fn push_layers<'a>(&self, layers: impl IntoIterator<Item = (&'a str, Bytes)>) -> String {
        let config = self.blob("{}".into());
        let layers = layers.into_iter().map(|(media_type, bytes)| {
            let size = bytes.len();
            json!({ "mediaType": media_type, "digest": self.blob(bytes), "size": size })
        });
        let layers: Vec<Value> = layers.collect();
        self.push_manifest(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": config, "size": 2 },
            "layers": layers,
        }))
    }

    /// Adds any manifest. Returns its reference.
    pub fn push_manifest(&self, manifest: &Value) -> String {
        let bytes = Bytes::from(manifest.to_string());
        let digest = digest(&bytes);
        let media_type = manifest["mediaType"].as_str().unwrap_or("application/json").to_owned();
        self.put("manifests", &digest, media_type, bytes);
        format!("oci://{}/{NAME}@{digest}", self.host())
    }

    /// Adds a blob. Returns its digest.
    pub fn blob(&self, bytes: Bytes) -> String {
        let digest = digest(&bytes);
        self.put("blobs", &digest, "application/octet-stream".into(), bytes);
        digest
    }

    fn put(&self, kind: &str, digest: &str, media_type: String, bytes: Bytes) {
        let path = format!("/v2/{NAME}/{kind}/{digest}");
        self.state.content.lock().unwrap().insert(path, (media_type, bytes));
    }

    /// Requires this account, and a token, for pulls from now on.
    pub fn lock(&self, username: &str, password: &str) {
        *self.state.account.lock().unwrap() = Some((username.into(), password.into()));
    }

    /// Lets a function answer requests from now on; `None` answers them as usual.
    pub fn spoil(&self, with: impl Fn(&Recorded) -> Option<Reply> + Send + 'static) {
        *self.state.spoiled.lock().unwrap() = Some(Box::new(with));
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.server.requests()
    }
}

impl State {
    fn answer(&self, request: &Recorded) -> Reply {
        if let Some(spoil) = self.spoiled.lock().unwrap().as_ref()
            && let Some(reply) = spoil(request)
        {
            return reply;
        }
        let authorization = request.header("authorization");
        let denied = |challenge: String| {
            Reply::status(401, "application/json", "{}").header("www-authenticate", &challenge)
        };
        if let Some((username, password)) = self.account.lock().unwrap().as_ref() {
            if let Some(query) = request.path.strip_prefix("/token?") {
                let basic = format!("Basic {}", STANDARD.encode(format!("{username}:{password}")));
                let scope = "service=fake&scope=repository%3Aacme%2Fagent%3Apull";
                return match authorization == Some(basic.as_str()) && query == scope {
                    true => Reply::json(&json!({ "token": TOKEN })),
                    false => denied("Basic".into()),
                };
            }
            if authorization != Some(format!("Bearer {TOKEN}").as_str()) {
                let host = request.header("host").unwrap();
                return denied(format!(
                    "Bearer realm=\"http://{host}/token\",service=\"fake\",scope=\"repository:{NAME}:pull\""
                ));
            }
        }
        match self.content.lock().unwrap().get(&request.path) {
            Some((media_type, bytes)) => Reply::status(200, media_type, bytes.clone()),
            None => Reply::status(404, "application/json", r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
