//! The canonical form of JSON texts.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
};

use fastrand::Rng;
use idempotent_core::canonical_json;
use serde_json::Value;

use crate::{respelled::Respelling, rfc_8785};

/// Input: the text.
pub(crate) fn run(text: &[u8]) {
    let value = serde_json::from_slice::<Value>(text).ok();
    let (Some(canonical), Some(value)) = (canonical_json(text), &value) else {
        assert_eq!(canonical_json(text), None, "a text that is not JSON");
        assert!(value.as_ref().is_none_or(|value| is_excluded(text, value)), "no canonical form");
        return;
    };
    assert!(!is_excluded(text, value), "a canonical form that the documentation excludes");
    assert_eq!(std::str::from_utf8(&canonical), Ok(rfc_8785::canonical(value).as_str()));
    assert_eq!(canonical_json(&canonical).as_ref(), Some(&canonical), "not idempotent");

    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let mut rng = Rng::with_seed(hasher.finish());
    let respelled = Respelling::new(&mut rng).of(value);
    assert_eq!(canonical_json(respelled.as_bytes()).as_ref(), Some(&canonical), "{respelled}");
    repeated_member(value, &mut rng);
    other_number(text, &canonical, &mut rng);
}

/// Texts with a member that occurs twice have no canonical form.
fn repeated_member(value: &Value, rng: &mut Rng) {
    let objects =
        count(value, &|value| usize::from(value.as_object().is_some_and(|o| !o.is_empty())));
    if objects > 0 {
        let at = rng.usize(..objects);
        let mut respelling = Respelling::new(rng);
        respelling.repeat_member_in = Some(at);
        let repeated = respelling.of(value);
        assert_eq!(canonical_json(repeated.as_bytes()), None, "{repeated}");
    }
}

/// Texts with different numbers have different canonical forms.
fn other_number(text: &[u8], canonical: &[u8], rng: &mut Rng) {
    let numbers = numbers(text);
    if numbers.is_empty() {
        return;
    }
    let range = numbers[rng.usize(..numbers.len())].clone();
    let mut other = text.to_vec();
    let digit = &mut other[rng.usize(range.clone())];
    if digit.is_ascii_digit() {
        *digit = rng.u8(b'0'..=b'9');
        let same = Decimal::parse(&text[range.clone()]) == Decimal::parse(&other[range]);
        let form = canonical_json(&other);
        let shown = String::from_utf8_lossy(&other);
        assert!(form.is_none() || (form.as_deref() == Some(canonical)) == same, "{shown}");
    }
}

/// Whether a JSON text is one of those for which the documentation excludes a canonical form.
fn is_excluded(text: &[u8], value: &Value) -> bool {
    let members = count(value, &|value| value.as_object().map_or(0, serde_json::Map::len));
    let outside = outside_of_strings(text);
    let colons = outside.iter().filter(|(_, byte)| *byte == b':').count();
    let values = outside.iter().filter(|(_, byte)| b",[{".contains(byte)).count();
    values > 20_000
        || members < colons
        || numbers(text).into_iter().any(|range| is_excluded_number(&text[range]))
}

fn count(value: &Value, of_one: &impl Fn(&Value) -> usize) -> usize {
    let within: usize = match value {
        Value::Array(values) => values.iter().map(|value| count(value, of_one)).sum(),
        Value::Object(members) => members.values().map(|value| count(value, of_one)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    within + of_one(value)
}

/// The bytes of a JSON text that are not in strings, and where they are.
fn outside_of_strings(text: &[u8]) -> Vec<(usize, u8)> {
    let (mut outside, mut bytes) = (Vec::new(), text.iter().copied().enumerate());
    while let Some((at, byte)) = bytes.next() {
        outside.push((at, byte));
        if byte == b'"' {
            while let Some((_, byte)) = bytes.next() {
                match byte {
                    b'"' => break,
                    b'\\' => drop(bytes.next()),
                    _ => {}
                }
            }
        }
    }
    outside
}

/// Where the numbers of a JSON text are.
fn numbers(text: &[u8]) -> Vec<Range<usize>> {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let mut numbers: Vec<Range<usize>> = Vec::new();
    for (at, byte) in outside_of_strings(text) {
        match numbers.last_mut() {
            Some(last) if is_part(byte) && last.end == at => last.end = at + 1,
            _ if byte.is_ascii_digit() || byte == b'-' => numbers.push(at..at + 1),
            _ => {}
        }
    }
    numbers
}

/// A number of any precision: DIGITS × 10^exponent.
#[derive(PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn parse(number: &[u8]) -> Self {
        let number = text_of(number).to_ascii_lowercase();
        let (mantissa, exponent) = number.split_once('e').unwrap_or((&number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let written = format!("{}{fraction}", whole.trim_start_matches('-'));
        let digits = written.trim_matches('0');
        let zeros = written.trim_start_matches('0').len() - digits.len();
        // What has more digits is not the exponent of a double.
        let exponent = exponent.parse::<i64>().unwrap_or(i64::MIN / 2);
        let exponent = exponent + length(zeros) - length(fraction.len());
        Self {
            negative: whole.starts_with('-'),
            digits: digits.to_owned(),
            exponent: if digits.is_empty() { 0 } else { exponent },
        }
    }
}

fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap()
}

fn text_of(number: &[u8]) -> &str {
    std::str::from_utf8(number).unwrap()
}

/// Whether a number is a negative zero, is too small, or has more than 15 significant digits.
fn is_excluded_number(number: &[u8]) -> bool {
    let value = text_of(number).parse::<f64>().unwrap();
    let mantissa = number.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next().unwrap();
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let digits = text_of(&digits).trim_matches('0').len();
    if digits == 0 {
        value.is_sign_negative()
    } else {
        digits > 15 || value.abs() < f64::MIN_POSITIVE
    }
}
