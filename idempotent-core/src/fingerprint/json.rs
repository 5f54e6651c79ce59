//! Canonical JSON (RFC 8785).

use std::{cmp::Ordering, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Returns the canonical form of a JSON text (RFC 8785). Returns `None` if this library defines no
/// canonical form of the text; such a body is compared as sent.
///
/// There is no canonical form for
///
/// * text that is not JSON;
/// * text that is not I-JSON (RFC 7493), which RFC 8785 §3.1 requires. Otherwise two texts that a
///   handler distinguishes could have the same form. This concerns objects with duplicate member
///   names, and numbers that a double does not represent: those with more than 15 digits between
///   the first and the last that is not zero, or closer to zero than 2.2e-308;
/// * text with a negative zero, which RFC 8785 writes without its sign;
/// * text with more than 20,000 values, which would take many times its size in memory.
#[must_use]
pub fn canonical_json(text: &[u8]) -> Option<Vec<u8>> {
    let value = strict_value(text)?;
    let mut canonical = Vec::with_capacity(text.len());
    write(&value, &mut canonical)?;
    Some(canonical)
}

/// The value of a JSON text, if it may have a canonical form.
pub(super) fn strict_value(text: &[u8]) -> Option<Value> {
    if has_inexact_number(text) {
        return None;
    }
    if has_too_many_values(text) {
        return None;
    }
    let Strict(value) = serde_json::from_slice(text).ok()?;
    Some(value)
}

/// Writes a value in its canonical form. Each part is written once, at its place: the cost does not
/// grow with the depth.
pub(super) fn write(value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => {
            serde_json::to_writer(out, value).ok()?
        }
        Value::Number(number) => {
            let number = number.as_f64().filter(|number| number.is_finite())?;
            out.extend(ryu_js::Buffer::new().format_finite(number).as_bytes());
        }
        Value::Array(values) => {
            out.push(b'[');
            for (at, value) in values.iter().enumerate() {
                out.extend(separator(at));
                write(value, out)?;
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(one, _), (other, _)| utf_16_order(one, other));
            out.push(b'{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                out.extend(separator(at));
                serde_json::to_writer(&mut *out, name).ok()?;
                out.push(b':');
                write(value, out)?;
            }
            out.push(b'}');
        }
    }
    Some(())
}

fn separator(at: usize) -> Option<u8> {
    (at > 0).then_some(b',')
}

/// Compares two texts by their UTF-16 code units.
///
/// It is the order of their bytes, except that the surrogates of the characters from U+10000, whose
/// UTF-8 begins with F0 to F4, come before U+E000 to U+FFFF, whose UTF-8 begins with EE or EF.
fn utf_16_order(one: &str, other: &str) -> Ordering {
    let rank = |byte: u8| if matches!(byte, 0xee | 0xef) { byte | 0x10 } else { byte };
    let differ = one.bytes().zip(other.bytes()).find(|(one, other)| one != other);
    differ.map_or_else(|| one.len().cmp(&other.len()), |(one, other)| rank(one).cmp(&rank(other)))
}

/// The maximum number of values of a text with a canonical form. A value in memory is far larger
/// than its text: an object with one member takes 8 bytes as text and 600 in memory.
const MOST_VALUES: usize = 20_000;

/// Returns whether the text may have too many values. Two texts with the same values have the same
/// structural bytes, so either both or neither of them are compared as they were sent.
fn has_too_many_values(text: &[u8]) -> bool {
    let (mut in_string, mut escaped, mut values) = (false, false, 0usize);
    for &byte in text {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        in_string = byte == b'"';
        values += usize::from(matches!(byte, b',' | b'[' | b'{'));
    }
    values > MOST_VALUES
}

/// Returns whether a double does not represent one of the numbers in the text. Numbers in strings
/// do not count.
fn has_inexact_number(text: &[u8]) -> bool {
    let (mut in_string, mut escaped, mut start) = (false, false, None);
    let inexact = |start: Option<usize>, end| {
        start.and_then(|start| text.get(start..end)).is_some_and(is_inexact)
    };
    for (at, &byte) in text.iter().enumerate() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        if matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E') {
            start.get_or_insert(at);
            continue;
        }
        if inexact(start.take(), at) {
            return true;
        }
        in_string = byte == b'"';
    }
    inexact(start, text.len())
}

/// Returns whether a number has more than 15 significant digits, is so small that a double has
/// fewer than 15 digits for it, or is a negative zero, which RFC 8785 writes without its sign.
/// Zeros at the end do not count: RFC 8785 writes `1e20` with all of them.
fn is_inexact(number: &[u8]) -> bool {
    let mantissa = number.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&b'e'));
    let digits = mantissa.filter(|byte| byte.is_ascii_digit()).enumerate();
    let mut significant = digits.filter(|(_, digit)| **digit != b'0').map(|(at, _)| at);
    let first = significant.next();
    let digits = first.map_or(0, |first| significant.last().unwrap_or(first) - first + 1);
    if digits == 0 {
        return number.starts_with(b"-");
    }
    let value = std::str::from_utf8(number).ok().and_then(|number| number.parse::<f64>().ok());
    digits > 15 || value.is_some_and(|value| value.abs() < f64::MIN_POSITIVE)
}

/// A JSON value without objects that repeat a name.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = map.next_entry::<String, Strict>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a JSON object has a duplicate member"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Option<String> {
        canonical_json(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn order_space_and_spelling_do_not_count() {
        let one = canonical(r#"{"amount": 10.0, "note": "\u00e9", "list": [1, null, true]}"#);
        assert_eq!(one.as_deref(), Some(r#"{"amount":10,"list":[1,null,true],"note":"é"}"#));
        assert_eq!(one, canonical("{\"list\":[1,null,true],\"note\":\"é\",\"amount\":1e1}"));
    }

    #[test]
    fn members_are_sorted_by_utf_16_code_units() {
        // RFC 8785 §3.2.3
        let text = concat!(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","#,
            r#""\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","#,
            r#""\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","#,
            r#""\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        );
        let values: Vec<_> = serde_json::from_str::<Map<String, Value>>(&canonical(text).unwrap())
            .unwrap()
            .into_iter()
            .collect();
        assert_eq!(values.len(), 7);
        let order = canonical(text).unwrap();
        let at = |needle: &str| order.find(needle).unwrap();
        assert!(
            at("Carriage") < at("One") && at("One") < at("Control") && at("Control") < at("Latin")
        );
        assert!(at("Latin") < at("Euro") && at("Euro") < at("Emoji") && at("Emoji") < at("Hebrew"));
    }

    #[test]
    fn the_order_is_that_of_utf_16_code_units() {
        let texts = [
            "",
            "a",
            "aa",
            "\u{7f}",
            "\u{80}",
            "\u{7ff}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{efff}",
            "\u{f000}",
            "\u{ffff}",
            "\u{10000}",
            "\u{10ffff}",
            "a\u{ffff}",
            "a\u{10000}",
            "\u{ffff}\u{10000}",
        ];
        for one in texts {
            for other in texts {
                let expected = one.encode_utf16().cmp(other.encode_utf16());
                assert_eq!(utf_16_order(one, other), expected, "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn what_a_handler_could_tell_apart_has_no_canonical_form() {
        assert_eq!(canonical(r#"{"amount":1,"amount":2}"#), None);
        assert_eq!(canonical(r#"[{"a":{"b":1,"b":1}}]"#), None);
        assert_eq!(canonical("9007199254740993"), None);
        assert_eq!(canonical("0.1000000000000000055"), None);
        assert_eq!(canonical(r#"{"a":-12345678901.23456}"#), None);
        assert_eq!(canonical("not json"), None);
        assert_eq!(canonical(""), None);
        assert_eq!(canonical("1e999"), None);
        for zero in ["1e-400", "-1E-400", "[0.1e-308]", "{\"a\":1e-310}", "-0", "-0.0e5"] {
            assert_eq!(canonical(zero), None, "{zero}");
        }
    }

    #[test]
    fn a_canonical_form_is_its_own_canonical_form() {
        for (text, form) in [
            ("1e20", "100000000000000000000"),
            ("-12345678901234.5e7", "-123456789012345000000"),
            ("1e21", "1e+21"),
            ("1e-7", "1e-7"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(form));
            assert_eq!(canonical(form).as_deref(), Some(form));
        }
    }

    #[test]
    fn a_text_of_very_many_values_is_not_taken_apart() {
        let many = |values: usize| canonical(&format!("[{}0]", "0,".repeat(values)));
        assert!(many(MOST_VALUES - 10).is_some());
        assert_eq!(many(MOST_VALUES), None);
        assert!(
            canonical(&format!("[\"{}\"]", ",[{".repeat(MOST_VALUES))).is_some(),
            "within a string nothing counts"
        );
    }

    #[test]
    fn digits_that_do_not_count_are_not_counted() {
        assert!(canonical(r#"{"1234567890123456":"1234567890123456","a\"":"\\","n":1}"#).is_some());
        assert!(canonical("[123456789012345,123456789012345]").is_some());
        assert_eq!(canonical("[1.50000000000000000]").as_deref(), Some("[1.5]"));
        assert!(canonical("0.000000000000000001").is_some());
        assert!(canonical("1e-300").is_some());
        assert!(canonical("[0,0.0,0e-999,true,false,null]").is_some());
    }
}
