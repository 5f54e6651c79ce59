//! RFC 8785 a second time, to compare with.

use std::fmt::Write as _;

use serde_json::Value;

/// The canonical form of a value.
pub(crate) fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&ecmascript(number.as_f64().unwrap())),
        Value::String(text) => string(text, out),
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write(value, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            out.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                string(name, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

/// RFC 8785 §3.2.2.2.
fn string(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => write!(out, "\\u{:04x}", u32::from(char)).unwrap(),
            _ => out.push(char),
        }
    }
    out.push('"');
}

/// `Number::toString` of ECMA-262, which RFC 8785 §3.2.2.3 refers to.
fn ecmascript(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let (negative, digits, exponent) = shortest(value);
    let sign = if negative { "-" } else { "" };
    let length = i32::try_from(digits.len()).unwrap();
    // The value is 0.DIGITS × 10^point.
    let point = exponent + length;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap());
    let split = |at: i32| digits.split_at(usize::try_from(at).unwrap());
    let text = match point {
        _ if (length..=21).contains(&point) => format!("{digits}{}", zeros(point - length)),
        1..=21 => format!("{}.{}", split(point).0, split(point).1),
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let (first, others) = split(1);
            let fraction = if others.is_empty() { String::new() } else { format!(".{others}") };
            format!("{first}{fraction}e{:+}", point - 1)
        }
    };
    format!("{sign}{text}")
}

/// The fewest digits that identify a double: sign, digits and exponent of DIGITS × 10^exponent.
pub(crate) fn shortest(value: f64) -> (bool, String, i32) {
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.parse::<i32>().unwrap() - i32::try_from(fraction.len()).unwrap();
    (value.is_sign_negative(), format!("{whole}{fraction}"), exponent)
}
