//! The card's signature: a detached JWS (RFC 7515) over the canonical form (JCS, RFC 8785) of the card of 1.0.
//!
//! Made once, when the card is; a GET signs nothing. The key is read and tried when the configuration is: one that
//! cannot sign is an error with the command that makes one that can, and no card is ever served with a signature that
//! we did not verify ourselves. Ed25519 gives the same bytes every time; P-256 does not, so with it every start, and every
//! change, has a card, and an ETag, of its own.
//!
//! **What is signed.** The card without `signatures`, by the presence rules of the protocol: a field that is REQUIRED or
//! `optional` stays as it was set, any other goes where it has its default. What the card of 1.0 does not know goes too:
//! so the document for both versions carries the same signature, and its fields of 0.3 are not covered.
//!
//! **Why there may be two.** The SDKs of Python and JavaScript (1.3) do not follow the text: they take out whatever is
//! empty, REQUIRED or not, at any depth. `{"schemes":{"bearer":{"list":[]}}}` is such a thing, so every agent with tokens
//! is one whose two forms differ. A verifier is content with one signature that fits. Where the forms differ there is
//! one of each, the protocol's first. What the second does not cover is what says nothing.
//!
//! Why no JWT crate: a detached signature is two base64 texts with a dot between, and the key is one that rustls's
//! cryptography reads already.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, Signature, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{PemObject, SectionKind};
use secrecy::zeroize::Zeroize as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

/// Signs cards. A clone is the same signer.
#[derive(Clone)]
pub struct CardSigner(Arc<Inner>);

struct Inner {
    key: Key,
    kid: String,
    /// The protected header, as it is sent.
    protected: String,
}

enum Key {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

/// Why a key cannot sign a card. The texts follow the name of where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSigningKey {
    /// No PEM, or none of a private key.
    #[error("holds no private key in PEM; {MAKE}")]
    Missing,
    /// PEM that ends early, or whose base64 is none.
    #[error("is not whole: its PEM cannot be read; {MAKE}")]
    Broken,
    /// It would need a passphrase, and there is nobody to ask.
    #[error("is encrypted; write it out plain with `openssl pkcs8 -in KEY.pem -out card-key.pem`")]
    Encrypted,
    /// The form before PKCS#8.
    #[error(
        "is not in PKCS#8; convert it with `openssl pkcs8 -topk8 -nocrypt -in KEY.pem -out card-key.pem`"
    )]
    OldForm,
    /// A public key, a certificate.
    #[error("is the public half; signing needs the private one: {MAKE}")]
    Public,
    /// Which one to take is not said.
    #[error("holds more than one private key; keep one")]
    Several,
    /// Another curve, RSA, or not a key at all.
    #[error("is neither an Ed25519 nor a P-256 key; {MAKE}")]
    Unsupported,
    /// Clients find the key by it.
    #[error("needs a key id: give `kid`")]
    Nameless,
}

const MAKE: &str = CardSigner::HOW_TO_MAKE_A_KEY;
/// How PEM says that a passphrase is needed, in PKCS#8 and before.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

// === impl CardSigner ===

impl CardSigner {
    /// For whoever has none yet.
    pub const HOW_TO_MAKE_A_KEY: &str =
        "make one with `openssl genpkey -algorithm ed25519 -out card-key.pem`";

    /// A signer with a private key in PKCS#8 PEM, Ed25519 or P-256. `kid` names the key, `jku` is where it is published.
    ///
    /// # Errors
    /// [`InvalidSigningKey`] where it is no such key.
    pub fn from_pem(pem: &SecretString, kid: &str, jku: Option<&str>) -> Result<Self, InvalidSigningKey> {
        if kid.is_empty() {
            return Err(InvalidSigningKey::Nameless);
        }
        let key = Key::from_pem(pem.expose_secret())?;
        let mut header = json!({ "alg": key.algorithm(), "typ": "JOSE", "kid": kid });
        if let (Some(header), Some(jku)) = (header.as_object_mut(), jku) {
            header.insert("jku".into(), json!(jku));
        }
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let signer = Self(Arc::new(Inner { key, kid: kid.to_owned(), protected }));
        match signer.sign(b"{}") {
            Some(_) => Ok(signer),
            None => Err(InvalidSigningKey::Unsupported),
        }
    }

    /// The `signatures` of a card.
    pub(crate) fn signatures(&self, card: &Value) -> Value {
        let protocol = present(card, CARD);
        let mut payloads = vec![canonical(&protocol)];
        let clean = canonical(&cleaned(&protocol).unwrap_or_else(|| json!({})));
        if !payloads.contains(&clean) {
            payloads.push(clean);
        }
        let signatures = payloads.iter().flatten().filter_map(|payload| self.sign(payload));
        let signatures: Vec<_> = signatures
            .map(|signature| json!({ "protected": self.0.protected, "signature": signature }))
            .collect();
        if signatures.is_empty() {
            // The same key did sign when it was loaded: only the machine's randomness can be at fault.
            tracing::error!(
                kid = self.0.kid,
                "the card could not be signed and is served without a signature"
            );
        }
        signatures.into()
    }

    /// The signature of a payload, verified.
    fn sign(&self, payload: &[u8]) -> Option<String> {
        let input = format!("{}.{}", self.0.protected, URL_SAFE_NO_PAD.encode(payload));
        let signature = self.0.key.sign(input.as_bytes())?;
        Some(URL_SAFE_NO_PAD.encode(signature))
    }
}

impl fmt::Debug for CardSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardSigner")
            .field("alg", &self.0.key.algorithm())
            .field("kid", &self.0.kid)
            .finish_non_exhaustive()
    }
}

// === impl Key ===

impl Key {
    fn from_pem(pem: &str) -> Result<Self, InvalidSigningKey> {
        // The reader of PEM passes over what it does not know.
        if ENCRYPTED.iter().any(|mark| pem.contains(mark)) {
            return Err(InvalidSigningKey::Encrypted);
        }
        let sections: Result<Vec<(SectionKind, Vec<u8>)>, _> =
            PemObject::pem_slice_iter(pem.as_bytes()).collect();
        let mut sections = sections.map_err(|_| InvalidSigningKey::Broken)?;
        let is = |kind| move |section: &&(SectionKind, Vec<u8>)| section.0 == kind;
        let mut keys = sections.iter().filter(is(SectionKind::PrivateKey));
        let key = match (keys.next(), keys.next()) {
            (Some((_, der)), None) => Self::from_pkcs8(der),
            (Some(_), Some(_)) => Err(InvalidSigningKey::Several),
            (None, _) if sections.is_empty() => Err(InvalidSigningKey::Missing),
            (None, _) if sections.iter().any(|section| is(SectionKind::EcPrivateKey)(&section)) => {
                Err(InvalidSigningKey::OldForm)
            }
            (None, _) if sections.iter().any(|section| is(SectionKind::RsaPrivateKey)(&section)) => {
                Err(InvalidSigningKey::Unsupported)
            }
            (None, _) => Err(InvalidSigningKey::Public),
        };
        sections.iter_mut().for_each(|(_, der)| der.zeroize());
        key
    }

    fn from_pkcs8(der: &[u8]) -> Result<Self, InvalidSigningKey> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8(der) {
            return Ok(Self::Ed25519(pair));
        }
        match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der) {
            Ok(pair) => Ok(Self::P256(pair)),
            Err(_) => Err(InvalidSigningKey::Unsupported),
        }
    }

    /// Its name in a JWS header.
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
        }
    }

    /// Signs, and verifies what came of it.
    fn sign(&self, input: &[u8]) -> Option<Signature> {
        let (signature, verified) = match self {
            Self::Ed25519(pair) => {
                let signature = pair.sign(input);
                let public = UnparsedPublicKey::new(&ED25519, pair.public_key());
                (signature, public.verify(input, signature.as_ref()))
            }
            Self::P256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), input).ok()?;
                let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key());
                (signature, public.verify(input, signature.as_ref()))
            }
        };
        verified.is_ok().then_some(signature)
    }
}

// === what is signed ===

/// A field of a message, by the proto of 1.0.
struct Field {
    name: &'static str,
    /// REQUIRED or `optional`: set is set, whatever the value.
    stays: bool,
    holds: Holds,
}

enum Holds {
    /// A value, or a list of values.
    Value,
    /// A message, or a list of messages.
    Message(&'static [Field]),
    /// Messages by name.
    Map(&'static [Field]),
}

const fn stays(name: &'static str) -> Field {
    Field { name, stays: true, holds: Holds::Value }
}

const fn goes(name: &'static str) -> Field {
    Field { name, stays: false, holds: Holds::Value }
}

impl Field {
    const fn of(self, message: &'static [Self]) -> Self {
        Self { holds: Holds::Message(message), ..self }
    }

    const fn map(self, message: &'static [Self]) -> Self {
        Self { holds: Holds::Map(message), ..self }
    }
}

/// The card; what it has no field for is not signed. Only what a card of ours can hold goes further down.
const CARD: &[Field] = &[
    stays("name"),
    stays("description"),
    stays("supportedInterfaces").of(&[
        stays("url"),
        stays("protocolBinding"),
        goes("tenant"),
        stays("protocolVersion"),
    ]),
    goes("provider").of(&[stays("url"), stays("organization")]),
    stays("version"),
    stays("documentationUrl"),
    stays("capabilities").of(&[
        stays("streaming"),
        stays("pushNotifications"),
        goes("extensions").of(&[goes("uri"), goes("description"), goes("required"), goes("params")]),
        stays("extendedAgentCard"),
    ]),
    goes("securitySchemes").map(&[goes("httpAuthSecurityScheme").of(&[
        goes("description"),
        stays("scheme"),
        goes("bearerFormat"),
    ])]),
    goes("securityRequirements").of(REQUIREMENT),
    stays("defaultInputModes"),
    stays("defaultOutputModes"),
    stays("skills").of(&[
        stays("id"),
        stays("name"),
        stays("description"),
        stays("tags"),
        goes("examples"),
        goes("inputModes"),
        goes("outputModes"),
        goes("securityRequirements").of(REQUIREMENT),
    ]),
    stays("iconUrl"),
];

const REQUIREMENT: &[Field] = &[goes("schemes").map(&[goes("list")])];

/// A message with the fields that are there by the rules of the protocol.
fn present(message: &Value, fields: &[Field]) -> Value {
    let Value::Object(message) = message else { return message.clone() };
    let mut kept = Map::new();
    for Field { name, stays, holds } in fields {
        let Some(value) = message.get(*name) else { continue };
        let value = match (holds, value) {
            (Holds::Message(inner), Value::Array(list)) => {
                list.iter().map(|each| present(each, inner)).collect()
            }
            (Holds::Message(inner), value) => present(value, inner),
            (Holds::Map(inner), Value::Object(map)) => {
                map.iter().map(|(key, each)| (key.clone(), present(each, inner))).collect()
            }
            (_, value) => value.clone(),
        };
        // A message that is there is there, even with nothing in it.
        let is_message = matches!(holds, Holds::Message(_)) && value.is_object();
        if *stays || is_message || !is_default(&value) {
            kept.insert((*name).into(), value);
        }
    }
    Value::Object(kept)
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// The same without anything empty, as the SDKs have it; none where nothing is left.
fn cleaned(value: &Value) -> Option<Value> {
    let value = match value {
        Value::Array(list) => list.iter().filter_map(cleaned).collect(),
        Value::Object(map) => {
            map.iter().filter_map(|(name, value)| Some((name.clone(), cleaned(value)?))).collect()
        }
        value => value.clone(),
    };
    let empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    (!empty).then_some(value)
}

/// The canonical form; none for a number that JSON has no exact form for, which no card of ours holds.
fn canonical(value: &Value) -> Option<Vec<u8>> {
    serde_json_canonicalizer::to_vec(value).ok()
}

#[cfg(test)]
mod tests;
