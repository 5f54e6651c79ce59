//! Other texts for a JSON value.

use std::fmt::Write as _;

use fastrand::Rng;
use serde_json::Value;

use crate::rfc_8785::shortest;

/// Writes a value with its members in another order, and with other spellings of its strings and
/// numbers.
pub(crate) struct Respelling<'a> {
    pub(crate) rng: &'a mut Rng,
    /// Writes a member of an object twice, in the object of this number.
    pub(crate) repeat_member_in: Option<usize>,
    out: String,
}

impl<'a> Respelling<'a> {
    pub(crate) fn new(rng: &'a mut Rng) -> Self {
        Self { rng, repeat_member_in: None, out: String::new() }
    }

    pub(crate) fn of(mut self, value: &Value) -> String {
        self.write(value);
        self.out
    }

    fn write(&mut self, value: &Value) {
        self.space();
        match value {
            Value::Null | Value::Bool(_) => write!(self.out, "{value}").unwrap(),
            Value::Number(number) => self.number(number.as_f64().unwrap()),
            Value::String(text) => self.string(text),
            Value::Array(values) => {
                self.out.push('[');
                for (at, value) in values.iter().enumerate() {
                    self.out.push_str(if at > 0 { "," } else { "" });
                    self.write(value);
                }
                self.out.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                self.rng.shuffle(&mut members);
                self.repeat_one(&mut members);
                self.out.push('{');
                for (at, (name, value)) in members.into_iter().enumerate() {
                    self.out.push_str(if at > 0 { "," } else { "" });
                    self.space();
                    self.string(name);
                    self.space();
                    self.out.push(':');
                    self.write(value);
                }
                self.out.push('}');
            }
        }
        self.space();
    }

    /// Repeats a member if this is the object in which to do so.
    fn repeat_one<T: Copy>(&mut self, members: &mut Vec<T>) {
        if members.is_empty() {
            return;
        }
        self.repeat_member_in = match self.repeat_member_in {
            Some(0) => {
                let repeated = members[self.rng.usize(..members.len())];
                members.insert(self.rng.usize(..=members.len()), repeated);
                None
            }
            other => other.map(|number| number - 1),
        };
    }

    fn space(&mut self) {
        if self.rng.u8(..4) == 0 {
            self.out.push_str([" ", "\n", "\t", "\r\n "][self.rng.usize(..4)]);
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for char in text.chars() {
            let escaped = self.rng.u8(..4) == 0;
            match char {
                '\0'..='\u{1f}' | '"' | '\\' => self.escape(char),
                _ if escaped => self.escape(char),
                _ => self.out.push(char),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, char: char) {
        for unit in char.encode_utf16(&mut [0; 2]) {
            if self.rng.bool() {
                write!(self.out, "\\u{unit:04x}").unwrap();
            } else {
                write!(self.out, "\\u{unit:04X}").unwrap();
            }
        }
    }

    /// Moves the decimal point.
    fn number(&mut self, value: f64) {
        if value == 0.0 {
            return self
                .out
                .push_str(["0", "0.0", "0e1", "0E-400", "0.00e+7"][self.rng.usize(..5)]);
        }
        let (negative, digits, exponent) = shortest(value);
        self.out.push_str(if negative { "-" } else { "" });
        let point = self.rng.usize(..=digits.len());
        let (whole, fraction) = digits.split_at(point);
        self.out.push_str(if whole.is_empty() { "0" } else { whole });
        if !fraction.is_empty() {
            write!(self.out, ".{fraction}").unwrap();
        }
        let exponent = exponent + i32::try_from(fraction.len()).unwrap();
        match self.rng.u8(..3) {
            0 if exponent == 0 => {}
            0 => write!(self.out, "e{exponent}").unwrap(),
            1 => write!(self.out, "E{exponent:+}").unwrap(),
            _ => write!(self.out, "e{exponent:+04}").unwrap(),
        }
    }
}
