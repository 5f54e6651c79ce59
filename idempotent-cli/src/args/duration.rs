//! Durations on the command line.

use std::time::Duration;

/// Reads a duration such as `10s`, `500ms`, `5m`, `2h` or `7d`; a number alone is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let millis: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(explanation()),
    };
    let number: u64 = number.parse().map_err(|_| explanation())?;
    match number.checked_mul(millis) {
        Some(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(explanation()),
    }
}

fn explanation() -> String {
    "write a number above 0 and a unit, such as `500ms`, `10s`, `5m`, `2h` or `7d`".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, millis) in
            [("10", 10_000), ("10s", 10_000), ("500ms", 500), ("5m", 300_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
        for wrong in ["", "s", "0", "-1s", "1.5s", "1 s", "1y", "99999999999999999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
