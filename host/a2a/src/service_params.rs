//! Service parameters: what a request says about itself beside its content, in headers or in the query.
//!
//! They are read once per request and owned, so that a turn of several minutes does not keep the headers alive.

use http::{HeaderMap, HeaderName};

use crate::version;

/// The header for extensions in 1.0.
pub(crate) const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
/// The header for extensions in 0.3.
pub(crate) const X_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");

/// The service parameters of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceParams {
    /// The protocol version that the caller requests, as it wrote it. An empty value counts as absent.
    version: Option<String>,
    /// The extensions that the caller supports, by their URIs.
    pub(crate) extensions: Vec<String>,
}

// === impl ServiceParams ===

impl ServiceParams {
    /// Reads the parameters of a request.
    pub(crate) fn read(headers: &HeaderMap, query: Option<&str>) -> Self {
        Self { version: version(headers, query).map(str::to_owned), extensions: extensions(headers) }
    }

    /// The protocol version that the caller requests.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

/// The requested version. The query parameter is for callers that cannot set a header.
fn version<'r>(headers: &'r HeaderMap, query: Option<&'r str>) -> Option<&'r str> {
    let header = headers.get(version::HEADER).map(|value| value.to_str().unwrap_or("?").trim());
    header.filter(|version| !version.is_empty()).or_else(|| {
        let parameters = query?.split('&').filter_map(|pair| pair.split_once('='));
        parameters
            .filter(|(name, _)| name.eq_ignore_ascii_case(version::NAME))
            .map(|(_, version)| version.trim())
            .find(|version| !version.is_empty())
    })
}

/// The extensions in the headers of either version.
fn extensions(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(EXTENSIONS).into_iter().chain(headers.get_all(X_EXTENSIONS));
    let uris = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    uris.map(str::trim).filter(|uri| !uri.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_header_takes_precedence_over_the_query_and_empty_means_absent() {
        let mut headers = HeaderMap::new();
        assert_eq!(version(&headers, None), None);
        assert_eq!(version(&headers, Some("x=1&A2A-Version=1.0")), Some("1.0"));
        headers.insert(version::NAME, " ".parse().unwrap());
        assert_eq!(version(&headers, Some("a2a-version=1.0")), Some("1.0"));
        headers.insert(version::NAME, "0.3".parse().unwrap());
        assert_eq!(version(&headers, Some("A2A-Version=1.0")), Some("0.3"));
    }

    #[test]
    fn extensions_come_as_lists_and_in_either_header() {
        let mut headers = HeaderMap::new();
        headers.append(EXTENSIONS, HeaderValue::from_static("urn:a, urn:b,"));
        headers.append(EXTENSIONS, HeaderValue::from_static(",urn:c"));
        headers.append(X_EXTENSIONS, HeaderValue::from_static("urn:d"));
        assert_eq!(extensions(&headers), ["urn:a", "urn:b", "urn:c", "urn:d"]);
    }
}
