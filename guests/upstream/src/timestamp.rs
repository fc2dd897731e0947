//! Timestamps of upstreams, as milliseconds since 1970. A text that does not have exactly the expected form is `None`.

/// Parses RFC 3339, such as `2026-11-18T03:29:24.123456+00:00`; without a zone it is UTC.
#[must_use]
pub fn rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => (time.get(..at)?, time.get(at..)?),
        None => (time, "Z"),
    };
    let offset = match zone.get(..1)? {
        "Z" => 0,
        sign => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let minutes = number(hours)? * 60 + number(minutes)?;
            if sign == "-" { -minutes } else { minutes }
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let thousandths = number(format!("{fraction:0<3}").get(..3)?)?;
    Some(at(year, month, day, time)? - offset * 60_000 + thousandths)
}

/// Parses the date of an HTTP header, such as `Wed, 18 Nov 2026 03:29:24 GMT`.
#[must_use]
pub fn http(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = text.trim().split_once(", ")?;
    let mut words = rest.strip_suffix(" GMT")?.splitn(4, ' ');
    let (day, month) = (number(words.next()?)?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    at(number(words.next()?)?, i64::try_from(month).ok()?, day, words.next()?)
}

fn number(digits: &str) -> Option<i64> {
    let is_number = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

fn at(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let mut time = time.splitn(3, ':').map(number);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let in_range = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    // Days since 1970 of the civil date, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    in_range.then(|| (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_timestamp_give_the_same_number() {
        let wanted = Some(1_795_003_764_000);
        assert_eq!(http("Wed, 18 Nov 2026 12:09:24 GMT"), wanted);
        for text in ["2026-11-18T12:09:24Z", "2026-11-18T12:09:24.000000+00:00", "2026-11-18 14:09:24+02:00"]
        {
            assert_eq!(rfc3339(text), wanted, "{text}");
        }
        assert_eq!(rfc3339("1970-01-01T00:00:00.5Z"), Some(500));
        assert_eq!(rfc3339("2000-02-29T00:00:00.1234Z"), Some(951_782_400_123));
        for bad in
            ["", "now", "2026-11-18", "2026-13-18T00:00:00Z", "2026-11-18T00:00Z", "2026-11-18T00:00:00+2"]
        {
            assert_eq!(rfc3339(bad), None, "{bad}");
            assert_eq!(http(bad), None, "{bad}");
        }
    }
}
