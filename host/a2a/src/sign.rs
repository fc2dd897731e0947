//! The card's signature: a detached JWS (RFC 7515) over the canonical form (JCS, RFC 8785) of the card of 1.0.
//!
//! A card is signed once, when it is built; a GET signs nothing. The key is loaded and tried with the configuration: a key that
//! cannot sign is an error that names the command for a new one, and no card is served with a signature that we have not
//! verified. Ed25519 always gives the same bytes; P-256 does not, so with it every start and every change has its own card and
//! ETag.
//!
//! **What is signed.** The card without `signatures`, by the presence rules of the protocol: a field that is REQUIRED or
//! `optional` is kept as it was set, any other is omitted if it has its default value. Fields that the card of 1.0 does not have
//! are omitted too, so the document for both versions carries the same signature, which does not cover its fields of 0.3.
//!
//! **Why there may be two signatures.** The Python and JavaScript SDKs (1.3) deviate from the specification: they remove every
//! empty value, REQUIRED or not, at any depth. `{"schemes":{"bearer":{"list":[]}}}` contains one, so the two forms differ for
//! every agent with tokens. A verifier needs one valid signature. If the forms differ, the card has a signature of each, that of
//! the specification first. The second one leaves out only empty values.
//!
//! No JWT crate is needed: a detached signature is two base64 texts joined by a dot, and the cryptography of rustls already
//! reads the key.

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

/// Signs cards. Cheap to clone.
#[derive(Clone)]
pub struct CardSigner(Arc<Inner>);

struct Inner {
    key: Key,
    kid: String,
    /// The protected header in base64, as it is sent.
    protected: String,
}

enum Key {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

/// Why a key cannot sign a card. The text continues the name of the key's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSigningKey {
    /// There is no PEM section with a private key.
    #[error("holds no private key in PEM; {MAKE}")]
    Missing,
    /// The PEM ends early or is not base64.
    #[error("is not whole: its PEM cannot be read; {MAKE}")]
    Broken,
    /// The key needs a passphrase, and nobody is there to enter it.
    #[error("is encrypted; write it out plain with `openssl pkcs8 -in KEY.pem -out card-key.pem`")]
    Encrypted,
    /// The key is in SEC 1, the format before PKCS#8.
    #[error(
        "is not in PKCS#8; convert it with `openssl pkcs8 -topk8 -nocrypt -in KEY.pem -out card-key.pem`"
    )]
    OldForm,
    /// The PEM holds a public key or a certificate.
    #[error("is the public half; signing needs the private one: {MAKE}")]
    Public,
    /// The PEM holds several private keys.
    #[error("holds more than one private key; keep one")]
    Several,
    /// The key is on another curve, is an RSA key, or is not a key.
    #[error("is neither an Ed25519 nor a P-256 key; {MAKE}")]
    Unsupported,
    /// The key id, by which clients find the key, is missing.
    #[error("needs a key id: give `kid`")]
    Nameless,
}

const MAKE: &str = CardSigner::HOW_TO_MAKE_A_KEY;
/// The marks of an encrypted key in PEM, in PKCS#8 and before.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

// === impl CardSigner ===

impl CardSigner {
    /// Tells an operator how to create a key.
    pub const HOW_TO_MAKE_A_KEY: &str =
        "make one with `openssl genpkey -algorithm ed25519 -out card-key.pem`";

    /// Creates a signer with a private key in PKCS#8 PEM, Ed25519 or P-256. `kid` is the id of the key, `jku` the address where
    /// it is published.
    ///
    /// # Errors
    /// [`InvalidSigningKey`] if the PEM holds no such key.
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

    /// Returns the `signatures` of a card.
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
            // The key could sign when it was loaded, so only the system's randomness can be at fault.
            tracing::error!(kid = self.0.kid, "card could not be signed; serving it without a signature");
        }
        signatures.into()
    }

    /// Signs a payload and verifies the signature.
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
        // The PEM reader skips sections that it does not know.
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

    /// The name of the algorithm in a JWS header.
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
        }
    }

    /// Signs, and verifies the signature.
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

// === the signed content ===

/// A field of a message in the proto of 1.0.
struct Field {
    name: &'static str,
    /// Whether the field is REQUIRED or `optional`, and so kept even with its default value.
    kept: bool,
    holds: Holds,
}

enum Holds {
    /// A scalar, or a list of scalars.
    Value,
    /// A message, or a list of messages.
    Message(&'static [Field]),
    /// A map from names to messages.
    Map(&'static [Field]),
}

const fn kept(name: &'static str) -> Field {
    Field { name, kept: true, holds: Holds::Value }
}

const fn omitted(name: &'static str) -> Field {
    Field { name, kept: false, holds: Holds::Value }
}

impl Field {
    const fn of(self, message: &'static [Self]) -> Self {
        Self { holds: Holds::Message(message), ..self }
    }

    const fn map(self, message: &'static [Self]) -> Self {
        Self { holds: Holds::Map(message), ..self }
    }
}

/// The fields of the card; others are not signed. Nested messages are listed only if our cards can contain them.
const CARD: &[Field] = &[
    kept("name"),
    kept("description"),
    kept("supportedInterfaces").of(&[
        kept("url"),
        kept("protocolBinding"),
        omitted("tenant"),
        kept("protocolVersion"),
    ]),
    omitted("provider").of(&[kept("url"), kept("organization")]),
    kept("version"),
    kept("documentationUrl"),
    kept("capabilities").of(&[
        kept("streaming"),
        kept("pushNotifications"),
        omitted("extensions").of(&[
            omitted("uri"),
            omitted("description"),
            omitted("required"),
            omitted("params"),
        ]),
        kept("extendedAgentCard"),
    ]),
    omitted("securitySchemes").map(&[omitted("httpAuthSecurityScheme").of(&[
        omitted("description"),
        kept("scheme"),
        omitted("bearerFormat"),
    ])]),
    omitted("securityRequirements").of(REQUIREMENT),
    kept("defaultInputModes"),
    kept("defaultOutputModes"),
    kept("skills").of(&[
        kept("id"),
        kept("name"),
        kept("description"),
        kept("tags"),
        omitted("examples"),
        omitted("inputModes"),
        omitted("outputModes"),
        omitted("securityRequirements").of(REQUIREMENT),
    ]),
    kept("iconUrl"),
];

const REQUIREMENT: &[Field] = &[omitted("schemes").map(&[omitted("list")])];

/// Returns a message with those fields that are present by the rules of the protocol.
fn present(message: &Value, fields: &[Field]) -> Value {
    let Value::Object(message) = message else { return message.clone() };
    let mut kept_fields = Map::new();
    for Field { name, kept, holds } in fields {
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
        // A nested message is present even if it is empty.
        let is_message = matches!(holds, Holds::Message(_)) && value.is_object();
        if *kept || is_message || !is_default(&value) {
            kept_fields.insert((*name).into(), value);
        }
    }
    Value::Object(kept_fields)
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

/// Removes all empty values, as the SDKs do; `None` if nothing is left.
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

/// Returns the canonical form; `None` if a number has no exact form in JSON, which does not occur in our cards.
fn canonical(value: &Value) -> Option<Vec<u8>> {
    serde_json_canonicalizer::to_vec(value).ok()
}

#[cfg(test)]
mod tests;
