//! When something happened, as packets and envelopes write it: RFC 3339.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time as ClockTime};
use serde::{Serialize, Serializer};

/// An instant, in UTC, of the years 0000 to 9999.
///
/// Read and written here, rather than as a [`jiff::Timestamp`]: that one reads more than RFC 3339 allows, and not the
/// last day of 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(DateTime);

impl Time {
    /// For packets that do not say when: a fixed instant, so that the same bytes always give the same batch.
    pub const UNKNOWN: Self = Self(DateTime::constant(2023, 11, 16, 2, 0, 0, 0));

    /// Reads RFC 3339 and nothing else. A leap second counts as the one before it; digits beyond the nanosecond are
    /// cut off.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *date.as_bytes() else {
            return None;
        };
        let [
            b'T' | b't' | b' ',
            h1,
            h2,
            b':',
            n1,
            n2,
            b':',
            s1,
            s2,
            tail @ ..,
        ] = rest.as_bytes()
        else {
            return None;
        };
        let year = two(y1, y2)? * 100 + two(y3, y4)?;
        let date = Date::new(year, two(m1, m2)? as i8, two(d1, d2)? as i8).ok()?;
        let second = two(*s1, *s2)?;
        let second = if second == 60 { 59 } else { second } as i8;
        let (nanoseconds, offset) = fraction(tail)?;
        let clock = ClockTime::new(
            two(*h1, *h2)? as i8,
            two(*n1, *n2)? as i8,
            second,
            nanoseconds,
        );
        let local = date.to_datetime(clock.ok()?);
        let utc = match *offset {
            [b'Z' | b'z'] => local,
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
                let (hours, minutes) = (two(h1, h2)?, two(m1, m2)?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let offset = SignedDuration::from_mins(i64::from(hours) * 60 + i64::from(minutes));
                let utc = if sign == b'+' {
                    local.checked_sub(offset)
                } else {
                    local.checked_add(offset)
                };
                utc.ok()?
            }
            _ => return None,
        };
        (utc.year() >= 0).then_some(Self(utc))
    }
}

/// The number that two digits make.
fn two(tens: u8, ones: u8) -> Option<i16> {
    (tens.is_ascii_digit() && ones.is_ascii_digit())
        .then(|| i16::from(tens - b'0') * 10 + i16::from(ones - b'0'))
}

/// Nanoseconds, and what comes after them.
fn fraction(tail: &[u8]) -> Option<(i32, &[u8])> {
    let [b'.', tail @ ..] = tail else {
        return Some((0, tail));
    };
    let length = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return None;
    }
    let (digits, offset) = tail.split_at(length);
    let digits = digits.iter().copied().chain(std::iter::repeat(b'0'));
    let nanoseconds = digits
        .take(9)
        .fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
    Some((nanoseconds, offset))
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Z", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc_3339_is_read_into_utc() {
        for (text, expected) in [
            ("2026-02-27T11:05:00Z", "2026-02-27T11:05:00Z"),
            ("2026-02-27t11:05:00z", "2026-02-27T11:05:00Z"),
            ("2026-02-27 12:05:00+01:00", "2026-02-27T11:05:00Z"),
            ("2026-12-31T23:30:00-00:45", "2027-01-01T00:15:00Z"),
            ("2026-02-27T11:05:00.500Z", "2026-02-27T11:05:00.5Z"),
            (
                "2026-02-27T11:05:00.1234567891Z",
                "2026-02-27T11:05:00.123456789Z",
            ),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ] {
            let time = Time::parse(text).map(|time| time.to_string());
            assert_eq!(time.as_deref(), Some(expected), "{text}");
        }
        assert_eq!(Time::UNKNOWN.to_string(), "2023-11-16T02:00:00Z");
    }

    #[test]
    fn nothing_else_is() {
        for text in [
            "",
            "yesterday",
            "2026-02-27",
            "2026-02-27T11:05Z",
            "2026-02-27T11:05:00",
            "2026-02-27T11:05:00.Z",
            "2026-02-27T11:05:00+0100",
            "2026-02-27T11:05:00+01:00[Europe/Paris]",
            "2026-02-27T11:05:00+24:00",
            "2026-02-30T11:05:00Z",
            "2026-02-27T24:00:00Z",
            "2026-02-27T11:05:61Z",
            "20260227T110500Z",
            "+002026-02-27T11:05:00Z",
            "9999-12-31T23:59:59-01:00",
            "0000-01-01T00:00:00+01:00",
            "２026-02-27T11:05:00Z",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text in "[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\\.[0-9]{1,12})?(Z|[+-][0-2][0-9]:[0-5][0-9])") {
            if let Some(time) = Time::parse(&text) {
                prop_assert_eq!(Time::parse(&time.to_string()), Some(time));
            }
        }

        #[test]
        fn reading_is_total(text: String) {
            let _ = Time::parse(&text);
        }
    }
}
