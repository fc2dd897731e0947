//! The small values that callers send: page tokens, timestamps, base64, counts, queries, versions, and headers of one word.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::{AUTHORIZATION, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use talaria_a2a::fuzz::{self, Version};
use talaria_turns::Timestamp;

const TOKEN: &str = "t0ken";
/// The last millisecond of year 9999; later ones are formatted as this one.
const LAST: u64 = 253_402_300_799_999;

fuzz_target!(|text: &str| {
    if let Some(place) = fuzz::decode_page_token(text) {
        assert_eq!(fuzz::decode_page_token(&fuzz::encode_page_token(&place)), Some(place));
    }
    if let Some(timestamp) = fuzz::timestamp(text) {
        let shown = Timestamp::from_millis(timestamp.millis().min(LAST));
        assert_eq!(fuzz::timestamp(&timestamp.to_string()), Some(shown));
    }
    if let Some(bytes) = fuzz::bytes(text) {
        assert_eq!(fuzz::bytes(&STANDARD.encode(&bytes)).as_ref(), Some(&bytes));
        assert_eq!(fuzz::bytes(&URL_SAFE_NO_PAD.encode(&bytes)), Some(bytes));
    }
    for value in [Some(json!(text)), serde_json::from_str(text).ok()].into_iter().flatten() {
        if let Some(Some(count)) = fuzz::count(value) {
            assert!(count <= i32::MAX as usize);
            assert_eq!(fuzz::count(json!(count)), Some(Some(count)));
        }
    }
    let pairs = fuzz::query(text);
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let again: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    assert_eq!(fuzz::query(&again.join("&")), pairs);
    let serves = |version: Version| version.serves(Some(text));
    assert!(!(serves(Version::V03) && serves(Version::V1)), "a version is one of the two");

    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        check_headers(text, &value);
    }
});

fn check_headers(text: &str, value: &HeaderValue) {
    let one = |name: HeaderName| HeaderMap::from_iter([(name, value.clone())]);
    if let Some(Some(number)) = fuzz::last_event(&one(HeaderName::from_static("last-event-id"))) {
        assert_eq!(text.trim().parse(), Ok(number));
    }
    if fuzz::caller(TOKEN, &one(AUTHORIZATION)).is_some() {
        let (scheme, token) = text.split_at(7);
        assert_eq!((scheme.to_ascii_lowercase().as_str(), token.trim()), ("bearer ", TOKEN));
    }
    let status = fuzz::card(&one(IF_NONE_MATCH));
    assert!(matches!(status, StatusCode::OK | StatusCode::NOT_MODIFIED));
}
