//! Headers, both ways: which ones a guest may set, and which ones it may read.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use talaria_redact::Values;

use crate::access::{Access, Bounds};
use crate::error::Error;
use crate::target::Target;

/// Headers of the connection, or that the client sets itself. A guest that sets one gets an error.
const CONTROLLED: [HeaderName; 8] = [
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
];

/// More of them, without a constant in `http`. All of `proxy-*` are controlled too.
const CONTROLLED_BY_NAME: [&str; 2] = ["keep-alive", "http2-settings"];

/// Headers that choose the form or the part of an answer. A guest's are dropped, as a server may ignore them: an upstream that
/// repeats a request's headers would tell the secret in a form in which it is not found, or in pieces. Dropped, not
/// rejected, because HTTP clients set some of them by themselves.
const DROPPED: [HeaderName; 4] =
    [header::ACCEPT_ENCODING, header::ACCEPT_CHARSET, header::RANGE, header::IF_RANGE];

/// Headers to send; each is checked as it is added.
struct Outgoing {
    headers: HeaderMap,
    bytes: usize,
    most: usize,
}

/// Returns the headers to send: the guest's, checked, with secrets filled in and marked sensitive.
pub(crate) fn outgoing(
    access: &Access,
    target: &Target,
    given: Vec<(String, String)>,
) -> Result<HeaderMap, Error> {
    let mut outgoing = Outgoing::new(&access.bounds, given.len())?;
    for (name, value) in given {
        let name = to_name(&name)?;
        if DROPPED.contains(&name) {
            continue;
        }
        let value = match access.secrets.fill(&value, access, target)? {
            None => to_value(&name, value)?,
            Some(filled) => sensitive(to_value(&name, filled)?),
        };
        outgoing.add(name, value)?;
    }
    Ok(outgoing.headers)
}

/// Whether a request may set the header of this name.
///
/// # Errors
/// As the guest sees it.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let name = to_name(name)?;
    match is_controlled(&name) || DROPPED.contains(&name) {
        true => Err(set_by_the_host(&name)),
        false => Ok(()),
    }
}

/// Returns the headers to send, of which every value is a secret itself; nothing is filled in.
pub(crate) fn secret(bounds: &Bounds, given: Vec<(HeaderName, SecretString)>) -> Result<HeaderMap, Error> {
    let mut outgoing = Outgoing::new(bounds, given.len())?;
    for (name, value) in given {
        let value = sensitive(to_value(&name, value.expose_secret().to_owned())?);
        outgoing.add(name, value)?;
    }
    Ok(outgoing.headers)
}

fn to_name(name: &str) -> Result<HeaderName, Error> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_invalid| Error::invalid(format!("{name:?} is not a header name")))
}

fn set_by_the_host(name: &HeaderName) -> Error {
    Error::invalid(format!("header {name} is set by the host; remove it"))
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn to_value(name: &HeaderName, value: String) -> Result<HeaderValue, Error> {
    HeaderValue::from_maybe_shared(Bytes::from(value)).map_err(|_invalid| {
        Error::invalid(format!(
            "the value of header {name} holds a line break or control character; remove it"
        ))
    })
}

fn is_controlled(name: &HeaderName) -> bool {
    CONTROLLED.contains(name)
        || CONTROLLED_BY_NAME.contains(&name.as_str())
        || name.as_str().starts_with("proxy-")
}

/// Returns the headers of a response that a guest may read: without those of the connection, without cookies (there is no
/// jar, and sessions are not for guests to keep), without values that are not UTF-8, as the guest's strings must be, and with
/// secrets masked.
pub(crate) fn incoming(
    headers: &HeaderMap,
    bounds: &Bounds,
    secrets: &Values,
) -> Result<Vec<(String, String)>, Error> {
    if headers.len() > bounds.headers {
        return Err(Error::too_large(format!("the response has more than {} headers", bounds.headers)));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > bounds.header_bytes {
        return Err(Error::too_large(format!(
            "the response's headers are longer than {} bytes",
            bounds.header_bytes
        )));
    }
    let visible = headers.iter().filter(|(name, _)| !is_hidden(name, headers));
    Ok(visible
        .filter_map(|(name, value)| {
            let value = secrets.mask(Bytes::copy_from_slice(value.as_bytes()));
            Some((name.as_str().to_owned(), String::from_utf8(value.into()).ok()?))
        })
        .collect())
}

/// Rejects a body in an encoding: the host asks for none, and secrets in a compressed body would not be found.
pub(crate) fn check_encoding(headers: &HeaderMap, authority: &str) -> Result<(), Error> {
    let is_plain = |value: &HeaderValue, plain: &str| {
        let codings = value.to_str().unwrap_or("?").split(',').map(str::trim);
        codings.into_iter().all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(plain))
    };
    for (name, plain) in [(header::CONTENT_ENCODING, "identity"), (header::TRANSFER_ENCODING, "chunked")] {
        if !headers.get_all(&name).iter().all(|value| is_plain(value, plain)) {
            return Err(Error::protocol(format!(
                "{authority} sent an encoded answer ({name}) that was not asked for; secrets cannot be masked in it"
            )));
        }
    }
    Ok(())
}

fn is_hidden(name: &HeaderName, headers: &HeaderMap) -> bool {
    let cookie = *name == header::SET_COOKIE || name.as_str() == "set-cookie2";
    let of_the_connection = is_controlled(name) && *name != header::CONTENT_LENGTH;
    cookie || of_the_connection || is_named_by_connection(name, headers)
}

/// `connection: close, x-hop` makes `x-hop` a header of the connection too.
fn is_named_by_connection(name: &HeaderName, headers: &HeaderMap) -> bool {
    let options = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case(name.as_str()))
}

// === impl Outgoing ===

impl Outgoing {
    fn new(bounds: &Bounds, count: usize) -> Result<Self, Error> {
        let Bounds { headers: most, header_bytes, .. } = *bounds;
        if count > most {
            return Err(Error::invalid(format!("{count} headers; at most {most} may be sent")));
        }
        Ok(Self { headers: HeaderMap::new(), bytes: 0, most: header_bytes })
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), Error> {
        if is_controlled(&name) {
            return Err(set_by_the_host(&name));
        }
        self.bytes = self.bytes.saturating_add(name.as_str().len()).saturating_add(value.len());
        if self.bytes > self.most {
            return Err(Error::invalid(format!(
                "the headers are longer than {} bytes; send fewer",
                self.most
            )));
        }
        // Fails only beyond 32768 entries, where `append` would panic.
        self.headers
            .try_append(name, value)
            .map_err(|_full| Error::invalid("too many headers; send fewer"))?;
        Ok(())
    }
}
