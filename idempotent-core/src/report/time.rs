//! Times and durations, as they are shown.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Serialize, Serializer};

use crate::clock::Timestamp;

/// A time, to be shown in UTC. `Display` writes it for people, such as
/// `2026-11-27 12:03:01.250 UTC`; JSON has it as RFC 3339 writes it: `2026-11-27T12:03:01.250Z`.
/// Times after the year 9999 are shown as the last one of that year.
///
/// ```
/// use idempotent_core::{clock::Timestamp, report::Time};
///
/// let time = Time::from(Timestamp::from_millis(1_795_780_981_250));
/// assert_eq!(time.to_string(), "2026-11-27 12:03:01.250 UTC");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

const DAY: u64 = 24 * 60 * 60 * 1_000;
/// The last millisecond of the year 9999.
const LAST: u64 = 253_402_300_799_999;

impl Time {
    /// Returns the timestamp.
    #[must_use]
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }

    fn write(self, f: &mut impl fmt::Write, between: char, end: &str) -> fmt::Result {
        let millis = self.0.as_millis().min(LAST);
        let (year, month, day) = date(millis / DAY);
        let millis = millis % DAY;
        let [hour, minute, second] =
            [millis / 3_600_000, millis / 60_000 % 60, millis / 1_000 % 60];
        write!(f, "{year:04}-{month:02}-{day:02}{between}")?;
        write!(f, "{hour:02}:{minute:02}:{second:02}.{:03}{end}", millis % 1_000)
    }
}

/// The year, month and day of the proleptic Gregorian calendar, from the days since 1 January 1970.
/// The algorithm is `civil_from_days` of Howard Hinnant's "chrono-Compatible Low-Level Date
/// Algorithms", in which a year begins in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, ' ', " UTC")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, 'T', "Z");
        serializer.serialize_str(&text)
    }
}

/// A duration for people. `Display` writes its two largest units, such as `3 d 4 h`, `2 min 5 s` or
/// `250 ms`. [`FromStr`] reads a number and one unit, such as `500ms`, `10s`, `5m`, `2h` or `7d`; a
/// number alone is seconds.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_core::report::ShownDuration;
///
/// assert_eq!(ShownDuration(Duration::from_secs(125)).to_string(), "2 min 5 s");
/// assert_eq!("5m".parse(), Ok(ShownDuration(Duration::from_secs(300))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShownDuration(pub Duration);

impl fmt::Display for ShownDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (large, small) = match seconds {
            0 => return f.pad(&format!("{} ms", self.0.as_millis())),
            1..60 => return f.pad(&format!("{seconds} s")),
            60..3_600 => ((seconds / 60, "min"), (seconds % 60, "s")),
            3_600..86_400 => ((seconds / 3_600, "h"), (seconds / 60 % 60, "min")),
            _ => ((seconds / 86_400, "d"), (seconds / 3_600 % 24, "h")),
        };
        match small {
            (0, _) => f.pad(&format!("{} {}", large.0, large.1)),
            (small, unit) => f.pad(&format!("{} {} {small} {unit}", large.0, large.1)),
        }
    }
}

impl FromStr for ShownDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let millis: u64 = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(InvalidDuration),
        };
        let number = number.parse::<u64>().map_err(|_| InvalidDuration)?;
        let millis = number.checked_mul(millis).filter(|millis| *millis > 0);
        millis.map(|millis| Self(Duration::from_millis(millis))).ok_or(InvalidDuration)
    }
}

/// The error of a text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number above 0 and a unit, such as `500ms`, `10s`, `5m`, `2h` or `7d`")]
pub struct InvalidDuration;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, millis) in
            [("10", 10_000), ("10s", 10_000), ("500ms", 500), ("5m", 300_000), ("1d", 86_400_000)]
        {
            assert_eq!(text.parse(), Ok(ShownDuration(Duration::from_millis(millis))));
        }
        for wrong in ["", "s", "0", "-1s", "1.5s", "1 s", "1y", "99999999999999999999d"] {
            assert_eq!(wrong.parse::<ShownDuration>(), Err(InvalidDuration), "{wrong}");
        }
    }

    fn shown(millis: u64) -> String {
        Time::from(Timestamp::from_millis(millis)).to_string()
    }

    #[test]
    fn a_time_is_shown_in_utc() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_799, "2000-02-29 23:59:59"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_795_780_981, "2026-11-27 12:03:01"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(shown(seconds * 1_000 + 7), format!("{expected}.007 UTC"));
        }
        assert_eq!(shown(u64::MAX), "9999-12-31 23:59:59.999 UTC");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..150_000 {
            assert_eq!(date(days), (year, month, day));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if is_leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn json_has_rfc_3339() {
        let time = Time::from(Timestamp::from_millis(1_795_780_981_250));
        assert_eq!(serde_json::to_value(time).unwrap(), "2026-11-27T12:03:01.250Z");
    }

    #[test]
    fn a_duration_has_two_units() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (125_000, "2 min 5 s"),
            (3_600_000, "1 h"),
            (7_500_000, "2 h 5 min"),
            (86_400_000, "1 d"),
            (273_600_000, "3 d 4 h"),
        ] {
            assert_eq!(ShownDuration(Duration::from_millis(millis)).to_string(), expected);
        }
    }
}
