//! Durations as written in the attribute: `"90s"`, `"15m"`, `"24h"`, `"7d"`, `"1h30m"`.

/// Units from large to small, with their length in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// One hundred years. There is a limit because stores add durations to timestamps, and the sum
/// must not overflow.
const LONGEST: u64 = 36_500 * 86_400_000;

/// The milliseconds in `text`: whole numbers with units, the largest unit first. The error message
/// continues a sentence whose subject is the key.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let (mut rest, mut total, mut previous) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let (count, unit, unread) = term(rest)?;
        if unit >= previous {
            return Err(
                "has its units out of order; write the largest unit first and each unit once"
                    .to_owned(),
            );
        }
        let length = count.checked_mul(unit);
        let sum = length.and_then(|length| total.checked_add(length));
        total = sum.filter(|&sum| sum <= LONGEST).ok_or_else(too_long)?;
        (rest, previous) = (unread, unit);
    }
    Ok(total)
}

/// `milliseconds` in the attribute's notation, for messages.
pub(crate) fn format(milliseconds: u64) -> String {
    let mut rest = milliseconds;
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = rest / length;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
        rest %= length;
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The first number, its unit in milliseconds, and the remaining text.
fn term(text: &str) -> Result<(u64, u64, &str), String> {
    let (digits, text) = split(text, |c| c.is_ascii_digit());
    let (unit, rest) = split(text, |c| !c.is_ascii_digit());
    let known = UNITS.into_iter().find(|(name, _)| *name == unit);
    let wrong = match known {
        Some((_, length)) if !digits.is_empty() => {
            let count = digits.parse().map_err(|_| too_long())?;
            return Ok((count, length, rest));
        }
        _ if unit.starts_with('-') => "is negative".to_owned(),
        _ if unit.starts_with(['.', ',']) => "is not a whole number".to_owned(),
        _ if unit.contains(char::is_whitespace) => "contains a space".to_owned(),
        _ if digits.is_empty() => format!("has no number before `{unit}`"),
        _ if unit.is_empty() => format!("has no unit after `{digits}`"),
        _ => format!("has the unknown unit `{unit}`"),
    };
    Err(format!("{wrong}; write whole numbers with the units `d`, `h`, `m`, `s` or `ms`"))
}

/// The longest prefix of characters that `belong`, and what follows it.
fn split(text: &str, belong: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !belong(c)).unwrap_or(text.len());
    text.split_at(end)
}

fn too_long() -> String {
    format!("is longer than {}; write a shorter duration", format(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::{format, parse};

    #[test]
    fn each_unit_is_parsed() {
        for (text, milliseconds) in [
            ("5ms", 5),
            ("90s", 90_000),
            ("15m", 900_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("0s", 0),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(parse(text), Ok(milliseconds), "{text}");
        }
    }

    #[test]
    fn the_terms_of_a_duration_are_added_up() {
        assert_eq!(parse("1h30m"), Ok(5_400_000));
        assert_eq!(parse("1d2h3m4s5ms"), Ok(93_784_005));
    }

    #[test]
    fn each_mistake_has_a_message() {
        for (text, mistake) in [
            ("-5s", "is negative"),
            ("1h 30m", "contains a space"),
            ("90", "has no unit after `90`"),
            ("1h30", "has no unit after `30`"),
            ("s", "has no number before `s`"),
            ("soon", "has no number before `soon`"),
            ("5w", "has the unknown unit `w`"),
            ("5S", "has the unknown unit `S`"),
            ("5µs", "has the unknown unit `µs`"),
            ("1.5h", "is not a whole number"),
            ("1,5h", "is not a whole number"),
            (".5h", "is not a whole number"),
            ("30m1h", "has its units out of order"),
            ("1h1h", "has its units out of order"),
            ("36500d1ms", "is longer than 36500d"),
            ("36501d", "is longer than 36500d"),
            ("18446744073709551615d", "is longer than 36500d"),
            ("99999999999999999999s", "is longer than 36500d"),
        ] {
            let found = parse(text).unwrap_err();
            assert_eq!(found.split(';').next(), Some(mistake), "{text}");
        }
    }

    #[test]
    fn a_formatted_duration_parses_to_itself() {
        for milliseconds in [0, 1, 999, 1_000, 90_000, 5_400_000, 93_784_005] {
            assert_eq!(parse(&format(milliseconds)), Ok(milliseconds));
        }
    }
}
