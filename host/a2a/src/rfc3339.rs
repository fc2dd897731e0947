//! Parses RFC 3339 timestamps as clients write them.
//!
//! `time` does the parsing. `jiff` would accept more than the standard (a time without seconds) and moves a leap second back
//! instead of forward.

use talaria_turns::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const NANOS_PER_MILLI: i128 = 1_000_000;

/// Parses a timestamp and rounds it up to the millisecond: a lower bound that is finer than our clock must not admit what
/// lies before it. A leap second becomes the first instant after it, and everything before 1970 becomes 1970.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let nanos = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos().max(0);
    let millis = (nanos + NANOS_PER_MILLI - 1) / NANOS_PER_MILLI;
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_every_form_of_rfc_3339() {
        let at = 1_794_793_978_686;
        for (text, millis) in [
            ("2026-11-16T01:52:58.686Z", at),
            ("2026-11-16t01:52:58.686z", at),
            ("2026-11-16 02:52:58.686+01:00", at),
            ("2026-11-15T20:22:58.686-05:30", at),
            ("2026-11-16T01:52:58.6851Z", at),
            ("2026-11-16T01:52:58.685000001Z", at),
            ("2026-11-16T01:52:58Z", at - 686),
            ("1970-01-01T00:00:00Z", 0),
            ("0001-01-01T00:00:00Z", 0),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn rejects_everything_else() {
        for text in [
            "",
            "now",
            "2026-11-16",
            "2026-11-16T01:52:58",
            "2026-11-16T01:52Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+ü:00",
            "2026-1-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
            "1794793978686",
            "2026-01-01T00:00:00Zx",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parses_what_we_print(millis in 0_u64..253_402_300_799_999) {
            let timestamp = Timestamp::from_millis(millis);
            prop_assert_eq!(parse(&timestamp.to_string()), Some(timestamp));
        }

        #[test]
        fn never_panics(text in "[0-9TZ:.+ü -]{0,40}") {
            let _ = parse(&text);
        }
    }
}
