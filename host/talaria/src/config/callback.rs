//! `[callback]`: the listener for out-of-band replies, and the wire that upstreams post in.
//!
//! Without `[callback.plain]` the wire is that of the platform plugin of hermes-agent. With it, an operator describes any
//! other: a path, a header with a secret, and where in a JSON body the values are.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderName;
use secrecy::SecretString;
use talaria_config::{ConfigError, HttpUrl, secret};
use talaria_executors::config::Folder;
use talaria_hermes::{BridgeEnv, CALLBACK_PATH, HermesWire, SHARED_SECRET};
use talaria_mailbox::{CallbackWire, PlainWire, Pointer, SecretHeader};

use super::load::Loader;
use super::{callable, file};

/// The listener for out-of-band replies.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// The address that upstreams post to, if it was configured; see [`Callback::reply_url`].
    pub(crate) url: Option<HttpUrl>,
    /// The secret that upstreams must send.
    pub(crate) secret: Option<SecretString>,
    /// How upstreams post.
    pub(crate) wire: Wire,
}

/// How upstreams post.
#[derive(Debug, Clone)]
pub(crate) enum Wire {
    /// As the platform plugin of hermes-agent.
    Hermes,
    /// As `[callback.plain]` says.
    Plain {
        path: String,
        secret_header: HeaderName,
        message_id: Pointer,
        content: Pointer,
        chat: Option<Pointer>,
    },
}

// === impl Callback ===

impl Callback {
    /// The address that upstreams post to, given the address that was bound. Without a secret the listener adds a token.
    pub(crate) fn reply_url(&self, bound: SocketAddr) -> String {
        match &self.url {
            Some(url) => url.to_string(),
            None => format!("http://{}{}", callable(bound), self.path()),
        }
    }

    /// The path that upstreams post to.
    pub(crate) fn path(&self) -> &str {
        match &self.wire {
            Wire::Hermes => CALLBACK_PATH,
            Wire::Plain { path, .. } => path,
        }
    }

    /// The wire, with the secret.
    pub(crate) fn wire(&self) -> Arc<dyn CallbackWire> {
        match self.wire.clone() {
            Wire::Hermes => Arc::new(HermesWire::new(self.secret.clone())),
            Wire::Plain { path, secret_header, message_id, content, chat } => Arc::new(PlainWire {
                path,
                secret: SecretHeader::new(secret_header, self.secret.clone()),
                message: message_id,
                content,
                chat,
            }),
        }
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// The callback listener, if an executor may receive replies there.
    pub(super) fn callback(
        &mut self,
        file: Option<file::Callback>,
        bridge: &BridgeEnv,
        is_wanted: bool,
        executors: &Folder,
    ) -> Result<Option<Callback>, ConfigError> {
        // An executor that is dropped into the folder later may want it.
        if !is_wanted && (file.is_none() || !executors.path.is_dir()) {
            if file.is_some() {
                self.warnings.push("`[callback]` has no effect: no executor is granted `callbacks`".into());
            }
            return Ok(None);
        }
        let file = file.unwrap_or_default();
        let listen = bridge.callback_listen(file.listen);
        let wire = match &file.plain {
            Some(plain) => self.plain_wire(plain)?,
            None => Wire::Hermes,
        };
        let is_hermes = matches!(wire, Wire::Hermes);
        let secret = match &file.secret {
            Some(reference) => Some(reference.resolve(&self.folder, &self.env)),
            None if is_hermes => secret::by_name(SHARED_SECRET, &self.env).transpose(),
            None => None,
        };
        let secret = secret.transpose().map_err(|what| self.at("callback.secret", what))?;
        if secret.is_none() && !listen.ip().is_loopback() {
            let fix = match is_hermes {
                true => format!("set {SHARED_SECRET} here and for the plugin"),
                false => "set `callback.secret` here and the same for the upstream".into(),
            };
            let what = format!(
                "{listen} is beyond loopback, and everybody who reaches it could answer in the agent's name; {fix}"
            );
            return Err(match bridge.callback_host {
                Some(_) => ConfigError::variable("MOLECULE_A2A_CALLBACK_HOST", what),
                None => self.at("callback.listen", what),
            });
        }
        if !is_hermes && bridge.plugin {
            self.warnings.push(
                "`[callback.plain]` rejects the callbacks of the plugin that MOLECULE_A2A_PLATFORM_ENABLED turns on; remove one of them".into(),
            );
        }
        Ok(Some(Callback { listen, url: file.url, secret, wire }))
    }

    fn plain_wire(&self, plain: &file::PlainCallback) -> Result<Wire, ConfigError> {
        let key = |name: &str| format!("callback.plain.{name}");
        let pointer = |name: &str, text: &str| -> Result<Pointer, ConfigError> {
            text.parse().map_err(|what| self.at(key(name), format!("`{text}`: {what}")))
        };
        let path = &plain.path;
        let is_path = path.starts_with('/')
            && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'));
        if !is_path {
            let what = format!("`{path}` is not a path; write one such as `/replies`, without a query");
            return Err(self.at(key("path"), what));
        }
        let secret_header = plain.secret_header.parse::<HeaderName>().map_err(|_| {
            let what = format!("`{}` is not the name of a header", plain.secret_header);
            self.at(key("secret_header"), what)
        })?;
        Ok(Wire::Plain {
            path: path.clone(),
            secret_header,
            message_id: pointer("message_id", &plain.message_id)?,
            content: pointer("content", &plain.content)?,
            chat: plain.chat.as_deref().map(|text| pointer("chat", text)).transpose()?,
        })
    }
}
