//! The challenge of a 401: `Bearer realm="…",service="…",scope="…"`, or `Basic`.

/// How a registry wants to be authenticated to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// With user name and password.
    Basic,
    /// With a token of another server.
    Bearer {
        /// The URL of that server.
        realm: String,
        /// The service to name there.
        service: Option<String>,
        /// What the token should allow.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Parses one `WWW-Authenticate`; `None` if it is neither of the two.
    pub(crate) fn read(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        for (key, value) in Parameters(rest) {
            let place = match key.to_ascii_lowercase().as_str() {
                "realm" => &mut realm,
                "service" => &mut service,
                "scope" => &mut scope,
                _ => continue,
            };
            *place = Some(value);
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}

/// `key=value` or `key="value"`, with commas between; a quoted value may hold commas.
struct Parameters<'a>(&'a str);

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a str, String);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, rest) = self.0.trim_start_matches([',', ' ', '\t']).split_once('=')?;
        let rest = rest.trim_start();
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut value = String::new();
                let mut letters = quoted.char_indices();
                let end = loop {
                    match letters.next() {
                        Some((_, '\\')) => value.extend(letters.next().map(|(_, letter)| letter)),
                        Some((at, '"')) => break at + 1,
                        Some((_, letter)) => value.push(letter),
                        None => break quoted.len(),
                    }
                };
                (value, quoted.get(end..).unwrap_or_default())
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (value, rest) = rest.split_at(end);
                (value.trim().to_owned(), rest)
            }
        };
        self.0 = rest;
        Some((key.trim(), value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_the_forms_that_registries_send() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.into(),
                service: service.map(Into::into),
                scope: scope.map(Into::into),
            })
        };
        for (header, read) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a/token\",service=\"a\",scope=\"repository:x:pull,push\"",
                bearer("https://a/token", Some("a"), Some("repository:x:pull,push")),
            ),
            (
                "bearer scope=x, realm=https://a/t , error=\"invalid_token\"",
                bearer("https://a/t", None, Some("x")),
            ),
            ("Bearer realm=\"a\\\"b\"", bearer("a\"b", None, None)),
            ("Bearer service=\"a\"", None),
            ("Negotiate abc", None),
            ("", None),
        ] {
            assert_eq!(Challenge::read(header), read, "{header}");
        }
    }

    proptest! {
        #[test]
        fn parsing_any_header_ends(header in "(Bearer )?[a-z=\", \\\\ü]{0,60}") {
            drop(Challenge::read(&header));
        }
    }
}
