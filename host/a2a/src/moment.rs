//! RFC 3339 in: what other people's clocks print.

use talaria_turns::Timestamp;

/// A moment, to the millisecond, upwards: a bound that is finer than ours must not let in what lies before it.
/// What lies before 1970 is 1970.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let at = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at_checked(at)?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let in_month = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // Second 60 is a leap second.
    if !(1..=in_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let [hours, minutes] = numbers(zone.get(1..)?, ':', [2, 2])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * (hours * 60 + minutes)
        }
    };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute - offset) * 60 + second;
    let millis = seconds * 1000 + millis_of(fraction)?;
    Some(Timestamp::from_millis(u64::try_from(millis).unwrap_or(0)))
}

fn numbers<const N: usize>(text: &str, between: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut pieces = text.split(between);
    let mut found = [0; N];
    for (number, length) in found.iter_mut().zip(lengths) {
        *number = digits(pieces.next()?, length)?;
    }
    pieces.next().is_none().then_some(found)
}

fn digits(text: &str, length: usize) -> Option<i64> {
    (text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// The fraction of a second, rounded up.
fn millis_of(fraction: &str) -> Option<i64> {
    if fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let number = digits(fraction, fraction.len())?;
    let unit = 10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = i128::from(number) * 1000;
    i64::try_from((scaled + i128::from(unit) - 1) / i128::from(unit)).ok()
}

/// Days since 1970-01-01, in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that a leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_forms_of_rfc_3339_are_read() {
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
    fn anything_else_is_none() {
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
        fn what_we_print_is_read(millis in 0_u64..253_402_300_799_999) {
            let moment = Timestamp::from_millis(millis);
            prop_assert_eq!(parse(&moment.to_string()), Some(moment));
        }

        #[test]
        fn nothing_makes_it_panic(text in "[0-9TZ:.+ü -]{0,40}") {
            let _ = parse(&text);
        }
    }
}
