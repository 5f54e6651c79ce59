//! Durations in the attribute.

#[path = "../../idempotent-macros/src/parse/duration.rs"]
mod parser;

const UNITS: [(&str, u128); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const LONGEST: u128 = 36_500 * 86_400_000;

/// Input: the text of the literal.
pub(crate) fn run(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    match parser::parse(text) {
        Ok(milliseconds) => {
            assert_eq!(Some(milliseconds.into()), expected(text));
            assert_eq!(parser::parse(&parser::format(milliseconds)), Ok(milliseconds));
        }
        Err(message) => {
            assert_eq!(expected(text), None, "{message}");
            let (mistake, advice) = message.split_once("; write ").unwrap();
            assert!(!mistake.is_empty() && !advice.is_empty());
        }
    }
}

/// The sum of terms in decreasing units.
fn expected(text: &str) -> Option<u128> {
    let (mut rest, mut units, mut total) = (text, &UNITS[..], 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit = after.chars().take_while(|char| !char.is_ascii_digit()).collect::<String>();
        let at = units.iter().position(|(name, _)| *name == unit)?;
        // More digits than a day in milliseconds could have are too many, unless they are zeros.
        let number = number.trim_start_matches('0');
        let count =
            if number.is_empty() && digits > 0 { 0 } else { number.parse::<u128>().ok()? };
        total = count.checked_mul(units[at].1)?.checked_add(total)?;
        (rest, units) = (&after[unit.len()..], &units[at + 1..]);
    }
    (total <= LONGEST).then_some(total)
}
