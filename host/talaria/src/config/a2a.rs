//! The public server: its address, its callers, its card.
//!
//! Beyond loopback the configuration must say who may call, and a signed card needs a configured URL. Keys without effect
//! become warnings.

use std::collections::HashSet;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use http::uri::Authority;
use secrecy::ExposeSecret as _;
use talaria_a2a::{CardSigner, GrpcAddress};

use super::load::Loader;
use super::{A2a, Card, Overrides, PLATFORM, Token, Workspace, file};
use talaria_a2a::ReplyAs;
use talaria_config::{ConfigError, HttpUrl};

/// The port of the Python bridge.
const DEFAULT_PORT: u16 = 8000;

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn a2a(
        &mut self,
        file: file::A2a,
        workspace: Option<&Workspace>,
        overrides: &Overrides,
    ) -> Result<A2a, ConfigError> {
        let by_default: SocketAddr = match workspace {
            Some(workspace) => (Ipv4Addr::UNSPECIFIED, workspace.assembly.current().manifest.port).into(),
            None => (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(),
        };
        let listen = overrides.listen.or(file.listen).unwrap_or(by_default);
        let tokens = self.tokens(&file.auth)?;
        // In a workspace the platform has a token, so a closed server needs no other.
        let platform_calls = workspace.is_some() && (!tokens.is_empty() || file.auth.open == Some(false));
        if tokens.is_empty() && !platform_calls && !listen.ip().is_loopback() {
            match (file.auth.open, workspace) {
                (Some(true), _) => {}
                (None, Some(_)) => self.warnings.push(format!(
                    "everybody who reaches {listen} may call: WORKSPACE_ID is set and there are no tokens; \
                     set `a2a.auth.open = false` where the platform sends its secret, `a2a.auth.tokens`, or \
                     `a2a.auth.open = true` to agree"
                )),
                _ => {
                    let what = format!(
                        "{listen} is beyond loopback, and everybody who reaches it could call; \
                         set `a2a.auth.tokens`, or `a2a.auth.open = true` if that is meant"
                    );
                    return Err(match overrides.listen {
                        Some(_) => ConfigError::flag("--listen", what),
                        None => self.at("a2a.listen", what),
                    });
                }
            }
        }
        let grpc = self.grpc(&file.grpc, listen, tokens.is_empty() && !platform_calls)?;
        let hostname = workspace.and_then(|workspace| workspace.hostname.clone());
        if file.card.signing.is_some() && file.url.is_none() {
            let what = "signs one address, and without `a2a.url` the card says whichever it was asked for at; set `a2a.url`";
            return Err(self.at("a2a.card.signing", what));
        }
        if file.card.extended_card && tokens.is_empty() && !platform_calls {
            let what = "`a2a.card.extended_card` has no effect: it is for callers with a name, and without `a2a.auth.tokens` \
                        nobody has one";
            self.warnings.push(what.into());
        }
        if !file.trusted_proxies.is_empty() && file.url.is_some() {
            self.warnings.push("`a2a.trusted_proxies` has no effect: the card says `a2a.url`".into());
        }
        let trusted_proxies = self.each("a2a.trusted_proxies", &file.trusted_proxies)?;
        let cors = self.each("a2a.cors", &file.cors)?;
        let by_default = if workspace.is_some() { ReplyAs::Message } else { ReplyAs::Auto };
        let reply = file.reply.unwrap_or(by_default);
        let grpc_listen = file.grpc.listen;
        let file::A2a { url, stream, max_body, card, .. } = file;
        let card_signer = card.signing.as_ref().map(|signing| self.card_signer(signing)).transpose()?;
        let card = Card::new(card, workspace.map(|workspace| Arc::clone(&workspace.assembly)));
        Ok(A2a {
            listen,
            url,
            trusted_proxies,
            cors,
            reply,
            stream,
            max_body,
            tokens,
            platform_calls,
            hostname,
            grpc_listen,
            grpc,
            card,
            card_signer,
        })
    }

    /// Checks `[a2a.grpc]`. What callers without a name may do depends on whether they come from this machine, so one port
    /// may not be open to strangers while the other is not.
    fn grpc(
        &self,
        grpc: &file::Grpc,
        listen: SocketAddr,
        nameless: bool,
    ) -> Result<GrpcAddress, ConfigError> {
        if let Some(own) = grpc.listen {
            if own == listen && own.port() != 0 {
                let what =
                    "is the address of `a2a.listen`, which serves gRPC already; choose another, or none";
                return Err(self.at("a2a.grpc.listen", what));
            }
            if nameless && listen.ip().is_loopback() && !own.ip().is_loopback() {
                let what = format!(
                    "{own} is beyond loopback, and `a2a.listen` is not, so callers need no token; set `a2a.auth.tokens`, \
                     or choose an address on loopback"
                );
                return Err(self.at("a2a.grpc.listen", what));
            }
        }
        if let Some(address) = &grpc.address {
            let is_address = address.parse::<Authority>().is_ok_and(|address| {
                !address.host().is_empty() && address.port_u16().is_some() && !address.as_str().contains('@')
            });
            if !is_address {
                let what = format!("`{address}` must be a host and a port like \"agents.example.com:443\"");
                return Err(self.at("a2a.grpc.address", what));
            }
        }
        // The port of `listen` is known once it is bound.
        Ok(GrpcAddress { offered: grpc.offered, address: grpc.address.clone(), port: None })
    }

    /// Parses the elements of a list.
    fn each<T: FromStr<Err: Display>>(&self, key: &str, texts: &[String]) -> Result<Vec<T>, ConfigError> {
        let read = |(index, text): (usize, &String)| {
            text.parse().map_err(|why| self.at(format!("{key}[{index}]"), format!("`{text}` {why}")))
        };
        texts.iter().enumerate().map(read).collect()
    }

    fn card_signer(&mut self, signing: &file::Signing) -> Result<CardSigner, ConfigError> {
        let file::Signing { key, kid, jku } = signing;
        let at = |leaf: &str| format!("a2a.card.signing.{leaf}");
        if kid.trim().is_empty() {
            return Err(self.at(at("kid"), "empty; name the key, so that callers can find its public half"));
        }
        if let Some(jku) = jku.as_ref().filter(|jku| jku.as_str().starts_with("http://")) {
            self.warnings.push(format!(
                "`a2a.card.signing.jku` is {jku}: anybody on the path can give callers another key; use https://"
            ));
        }
        let pem = key.resolve(&self.folder, &self.env).map_err(|what| {
            self.at(at("key"), format!("{what}; if there is no key yet, {}", CardSigner::HOW_TO_MAKE_A_KEY))
        })?;
        let signer = CardSigner::from_pem(&pem, kid, jku.as_ref().map(HttpUrl::as_str));
        signer.map_err(|what| self.at(at("key"), format!("{key} {what}")))
    }

    fn tokens(&self, auth: &file::Auth) -> Result<Vec<Token>, ConfigError> {
        if auth.open == Some(true) && !auth.tokens.is_empty() {
            return Err(self.at("a2a.auth.open", "contradicts `a2a.auth.tokens`; keep one of the two"));
        }
        let mut names = HashSet::new();
        let mut tokens: Vec<Token> = Vec::new();
        for (index, token) in auth.tokens.iter().enumerate() {
            let key = |leaf: &str| format!("a2a.auth.tokens[{index}].{leaf}");
            if token.name.trim().is_empty() {
                return Err(self.at(key("name"), "empty; name the caller"));
            }
            if token.name == PLATFORM {
                return Err(
                    self.at(key("name"), format!("`{PLATFORM}` is the workspace's platform; take another"))
                );
            }
            if !names.insert(&token.name) {
                return Err(
                    self.at(key("name"), format!("`{}` is there twice; a name is one caller", token.name))
                );
            }
            let secret = self.bearer(&key("token"), &token.token)?;
            if tokens.iter().any(|known| known.token.expose_secret() == secret.expose_secret()) {
                return Err(
                    self.at(key("token"), "the same token as another caller's; a token is one caller")
                );
            }
            let file = token.token.file(&self.folder);
            let (name, limits) = (token.name.clone(), token.limits.clone());
            tokens.push(Token { name, token: secret, stream: token.stream, limits, file });
        }
        Ok(tokens)
    }
}
