//! The caller's place in a trace, from the headers of a request; of gRPC from its metadata, which are headers too.

use http::{HeaderMap, HeaderName};
use talaria_turns::TraceContext;

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");

/// Reads it, if it is there once and in its exact form.
pub(crate) fn of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(PARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    let states = headers.get_all(STATE).iter().filter_map(|value| value.to_str().ok());
    TraceContext::parse(parent.to_str().ok()?, states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_parents_are_none() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = HeaderMap::new();
        assert_eq!(of(&headers), None);
        headers.append(STATE, "a=1".parse().unwrap());
        headers.append(STATE, "b=2".parse().unwrap());
        assert_eq!(of(&headers), None, "a state without a parent");
        headers.append(PARENT, good.parse().unwrap());
        assert_eq!(of(&headers).unwrap().state.as_deref(), Some("a=1,b=2"));
        headers.append(PARENT, good.parse().unwrap());
        assert_eq!(of(&headers), None);
        headers.insert(PARENT, http::HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        assert_eq!(of(&headers), None);
    }
}
