//! The reference of a component: `oci://REGISTRY/NAME[:TAG]@sha256:DIGEST`.
//!
//! The digest is required. A tag is for people: it is parsed and shown, but never used for a request.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// The longest name of a repository, as in the distribution specification.
const NAME: usize = 255;
/// The longest tag, as in the same specification.
const TAG: usize = 128;

/// A manifest in a registry, named by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    name: String,
    tag: Option<String>,
    digest: Digest,
}

/// A SHA-256 digest, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

/// Why a text is not a reference, and how to write one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidReference(String);

// === impl Reference ===

impl Reference {
    /// The registry's host as written, with the port if there is one.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The digest of the manifest.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The host to call; Docker's registry has another one than its name.
    pub(crate) fn host(&self) -> &str {
        match self.registry.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            host => host,
        }
    }

    /// The repository's name, as the registry knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let bad = |what: String| InvalidReference(what);
        let written = text.strip_prefix("oci://").unwrap_or(text);
        let (place, digest) = match written.split_once('@') {
            Some((place, digest)) => (place, Some(digest)),
            None => (written, None),
        };
        let Some((registry, path)) = place.split_once('/').filter(|(registry, _)| is_host(registry)) else {
            return Err(bad(format!(
                "`{text}` names no registry; write it like `oci://ghcr.io/acme/agent@sha256:…`"
            )));
        };
        let Some(digest) = digest else {
            return Err(bad(format!(
                "`{text}` names no digest, and what a tag stands for can change; find it with `crane digest {place}` or \
                 `oras resolve {place}`, and write `oci://{}@sha256:…`",
                place.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(place, |(name, _)| name)
            )));
        };
        let (name, tag) = match path.rsplit_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (path, None),
        };
        if !is_name(name) {
            return Err(bad(format!("`{text}`: `{name}` is no name of a repository, such as `acme/agent`")));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad(format!("`{text}` has no proper tag; leave it out: the digest decides")));
        }
        let digest = digest.parse().map_err(|InvalidReference(what)| bad(format!("`{text}`: {what}")))?;
        let docker = matches!(registry, "docker.io" | "index.docker.io") && !name.contains('/');
        Ok(Self {
            registry: registry.to_owned(),
            name: if docker { format!("library/{name}") } else { name.to_owned() },
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

/// Tells a registry from a part of a name as Docker does: it has a dot or a port, or is `localhost`.
fn is_host(text: &str) -> bool {
    let looks = text.contains(['.', ':']) || text == "localhost";
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte);
    looks
        && text.len() <= NAME
        && text.bytes().all(fits)
        && format!("https://{text}").parse::<talaria_egress::Origin>().is_ok()
}

fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let edge =
            |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        edge(part.bytes().next()) && edge(part.bytes().last()) && part.bytes().all(inner)
    };
    name.len() <= NAME && name.split('/').all(part)
}

fn is_tag(tag: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=TAG).contains(&tag.len()) && tag.bytes().all(fits) && !tag.starts_with(['.', '-'])
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}/{}", self.registry, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        write!(f, "@{}", self.digest)
    }
}

// === impl Digest ===

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The digits, without the name of the hash.
    pub(crate) fn hex(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| {
            InvalidReference("only SHA-256 digests are known here; write `sha256:` and 64 digits".into())
        })?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match hex.len() == 64 && hex.bytes().all(is_hex) {
            true => Ok(Self(hex.to_owned())),
            false => Err(InvalidReference("a digest is `sha256:` and 64 of the digits 0-9 and a-f".into())),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_names_registry_repository_and_digest() {
        assert_eq!(Digest::of(b"").to_string(), DIGEST);
        for (text, host, name) in [
            ("oci://ghcr.io/acme/agent", "ghcr.io", "acme/agent"),
            ("ghcr.io/acme/agent:v1.2", "ghcr.io", "acme/agent"),
            ("oci://localhost:5000/a__b/c-d.e", "localhost:5000", "a__b/c-d.e"),
            ("oci://[::1]:5000/a", "[::1]:5000", "a"),
            ("oci://docker.io/agent", "registry-1.docker.io", "library/agent"),
            ("oci://docker.io/acme/agent:1", "registry-1.docker.io", "acme/agent"),
        ] {
            let read: Reference = format!("{text}@{DIGEST}").parse().expect(text);
            assert_eq!((read.host(), read.name()), (host, name), "{text}");
            assert_eq!(read.digest().to_string(), DIGEST);
            assert_eq!(read.to_string().parse::<Reference>(), Ok(read), "the displayed form parses back");
        }
    }

    #[test]
    fn an_error_says_how_to_write_the_reference() {
        let error = |text: &str| text.parse::<Reference>().expect_err(text).to_string();
        let unpinned = error("oci://ghcr.io/acme/agent:v1");
        assert!(unpinned.contains("crane digest ghcr.io/acme/agent:v1"), "{unpinned}");
        assert!(unpinned.ends_with("write `oci://ghcr.io/acme/agent@sha256:…`"), "{unpinned}");
        assert!(error(&format!("oci://acme/agent@{DIGEST}")).contains("names no registry"));
        assert!(error("oci://ghcr.io/acme/agent@sha512:00").contains("only SHA-256"));
        assert!(error("oci://ghcr.io/acme/agent@sha256:E3").contains("64 of the digits"));
        for name in ["Acme/agent", "../agent", "a//b", "a/", "a b", "a/..", "a?b", "a%2fb"] {
            assert!(
                error(&format!("oci://ghcr.io/{name}@{DIGEST}")).contains("no name of a repository"),
                "{name}"
            );
        }
        for registry in ["user:pw@ghcr.io", "ghcr.io?x", "GHCR.IO", "a.b:port:"] {
            drop(error(&format!("oci://{registry}/a@{DIGEST}")));
        }
    }

    proptest! {
        #[test]
        fn a_name_never_leaves_its_repository_and_a_host_is_only_a_host(text in "[a-z0-9.:/@%?#\\[\\]_-]{0,40}") {
            if let Ok(read) = format!("oci://{text}@{DIGEST}").parse::<Reference>() {
                prop_assert!(!read.name().contains("..") || !read.name().split('/').any(|part| part == ".."));
                prop_assert!(!read.host().contains(['/', '@', '?', '#', '%']));
            }
        }
    }
}
