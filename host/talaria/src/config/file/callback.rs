//! `[callback]`: the listener for out-of-band replies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use talaria_config::{HttpUrl, SecretRef};

/// `[callback]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "callback")]
pub(crate) struct Callback {
    /// The address to listen on; the path is `/a2a/reply`, or `callback.plain.path`. Beyond loopback it needs a secret.
    /// `MOLECULE_A2A_CALLBACK_HOST` and `MOLECULE_A2A_CALLBACK_PORT` override it.
    ///
    /// Example: `listen = "127.0.0.1:8646"`
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// The URL that upstreams are given to post to, with the path. Without a secret, a token is added to the path.
    ///
    /// Default: `http://`, the address of the listener, and the path
    ///
    /// Example: `url = "http://bridge:8646/a2a/reply"`
    pub(crate) url: Option<HttpUrl>,
    /// The secret that upstreams must send as `X-Molecule-A2A-Secret`, or in `callback.plain.secret_header`. Without one they
    /// must post to exactly the URL that they are given, whose path ends in a token.
    ///
    /// Default: `MOLECULE_A2A_PLATFORM_SHARED_SECRET`, or the file that `MOLECULE_A2A_PLATFORM_SHARED_SECRET_FILE` names, or
    /// what a gateway that `[gateway]` starts is given, unless there is a `[callback.plain]`; else none
    ///
    /// Example: `secret = { file = "/run/secrets/plugin" }`
    pub(crate) secret: Option<SecretRef>,
    /// Accepts callbacks as JSON of any shape, instead of the shape that the plugin of hermes-agent sends. See
    /// [callbacks.md](callbacks.md).
    ///
    /// Default: none; callbacks have the shape that the plugin of hermes-agent sends
    pub(crate) plain: Option<PlainCallback>,
}

/// `[callback.plain]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "callback_plain")]
pub(crate) struct PlainCallback {
    /// The path that upstreams post to.
    ///
    /// Example: `path = "/hooks/replies"`
    pub(crate) path: String,
    /// The header that must hold `callback.secret`.
    ///
    /// Example: `secret_header = "x-api-key"`
    pub(crate) secret_header: String,
    /// A JSON pointer to the id of the message that a callback answers. A callback without an id is a notice about its chat.
    ///
    /// Example: `message_id = "/data/in_reply_to"`
    pub(crate) message_id: String,
    /// A JSON pointer to the text, which must be a string.
    ///
    /// Example: `content = "/data/text"`
    pub(crate) content: String,
    /// A JSON pointer to the name of the chat.
    ///
    /// Default: none; notices without a message id are dropped
    ///
    /// Example: `chat = "/data/room"`
    pub(crate) chat: Option<String>,
}

// === defaults ===

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Default for Callback {
    fn default() -> Self {
        Self { listen: loopback(8646), url: None, secret: None, plain: None }
    }
}

impl Default for PlainCallback {
    fn default() -> Self {
        Self {
            path: "/callback".into(),
            secret_header: "x-callback-secret".into(),
            message_id: "/reply_to".into(),
            content: "/content".into(),
            chat: None,
        }
    }
}
