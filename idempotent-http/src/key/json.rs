//! A key in a member of a JSON body.

use serde::de::IgnoredAny;

use super::fault::KeyFault;

/// The text at a JSON pointer (RFC 6901): a string, or the digits of an integer. `None` if there is
/// no such member, or if it is null.
///
/// The body is checked first and then scanned for the one value, because a tree of all values takes
/// many times the size of the body. Numbers keep all their digits.
pub(super) fn member(body: &[u8], pointer: &str) -> Result<Option<String>, KeyFault> {
    let body = std::str::from_utf8(body).map_err(|_| KeyFault::NotJson)?;
    serde_json::from_str::<IgnoredAny>(body).map_err(|_| KeyFault::NotJson)?;
    let mut value = body.trim_ascii();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        match child(value, &token)? {
            Some(found) => value = found,
            None => return Ok(None),
        }
    }
    match value.as_bytes() {
        b"null" => Ok(None),
        [b'"', ..] => unescaped(value).map(Some).ok_or(KeyFault::NotJson),
        [b'-' | b'0'..=b'9', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            Ok(Some(value.to_owned()))
        }
        _ => Err(KeyFault::WrongType),
    }
}

/// The member or the element of `value` that `token` names.
fn child<'a>(value: &'a str, token: &str) -> Result<Option<&'a str>, KeyFault> {
    let mut found = None;
    if value.starts_with('{') {
        let mut parts = Parts::of(value);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            // Which of two equal names counts depends on the parser.
            if is_name(name, token) && found.replace(value).is_some() {
                return Err(KeyFault::Repeated);
            }
        }
    } else if value.starts_with('[') && is_index(token) {
        found = token.parse().ok().and_then(|index| Parts::of(value).nth(index));
    }
    Ok(found)
}

fn is_name(name: &str, token: &str) -> bool {
    if name.contains('\\') {
        return unescaped(name).is_some_and(|name| name == token);
    }
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) == Some(token)
}

/// RFC 6901 §4: digits without a leading zero.
fn is_index(token: &str) -> bool {
    token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()))
}

fn unescaped(string: &str) -> Option<String> {
    serde_json::from_str(string).ok()
}

/// The elements of an array, or the names and values of an object in turn. The text is valid JSON,
/// so only strings and brackets need to be told apart.
struct Parts<'a>(&'a str);

impl<'a> Parts<'a> {
    fn of(container: &'a str) -> Self {
        let inner = container.len().checked_sub(1).and_then(|end| container.get(1..end));
        Self(inner.unwrap_or_default())
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        // The rest is not trimmed at its end: what is there would be read again for each part.
        self.0 = self.0.trim_ascii_start();
        if self.0.is_empty() {
            return None;
        }
        let (mut in_string, mut escaped, mut depth) = (false, false, 0usize);
        let end = self.0.bytes().position(|byte| {
            if in_string {
                in_string = escaped || byte != b'"';
                escaped = !escaped && byte == b'\\';
                return false;
            }
            in_string = byte == b'"';
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' | b':' => return depth == 0,
                _ => {}
            }
            false
        });
        let end = end.unwrap_or(self.0.len());
        let (part, rest) = (self.0.get(..end)?, self.0.get(end.saturating_add(1)..));
        self.0 = rest.unwrap_or_default();
        Some(part.trim_ascii())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn key(body: &str, pointer: &str) -> Result<Option<String>, String> {
        member(body.as_bytes(), pointer).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_string_or_an_integer_at_the_pointer_is_the_key() {
        let body = r#" { "type" : "a,b:{\"id\":1}" , "id": "evt_1",
            "data":{"n":[7, -12, 12345678901234567890123, {"m~n/o":"deep"}], "":"empty", "0":"name"}
            ,"\u0065scaped":"\u006b", "none":null, "backslash":"\\" } "#;
        for (pointer, value) in [
            ("/id", Some("evt_1")),
            ("/type", Some(r#"a,b:{"id":1}"#)),
            ("/data/n/0", Some("7")),
            ("/data/n/1", Some("-12")),
            ("/data/n/2", Some("12345678901234567890123")),
            ("/data/n/3/m~0n~1o", Some("deep")),
            ("/data/", Some("empty")),
            ("/data/0", Some("name")),
            ("/escaped", Some("k")),
            ("/backslash", Some("\\")),
            ("/none", None),
            ("/missing", None),
            ("/data/n/4", None),
            ("/data/n/01", None),
            ("/data/n/-", None),
            ("/data/n/", None),
            ("/id/0", None),
            ("/none/0", None),
        ] {
            assert_eq!(key(body, pointer), Ok(value.map(str::to_owned)), "{pointer}");
        }
    }

    /// A random value, with texts that a scanner could mistake for structure.
    fn random(depth: u32) -> Value {
        const TEXTS: [&str; 8] = ["", "a", "}", "\"", "\\", "[{,:", "~1/", "\u{e9}\n"];
        let text = || (*fastrand::choice(&TEXTS).unwrap()).to_owned();
        match fastrand::u32(..if depth == 0 { 4 } else { 7 }) {
            0 => Value::Null,
            1 => fastrand::i64(-20..20).into(),
            2 => fastrand::bool().into(),
            3 => text().into(),
            4 => (0..fastrand::u32(..4)).map(|_| random(depth - 1)).collect(),
            _ => (0..fastrand::u32(..4)).map(|_| (text(), random(depth - 1))).collect(),
        }
    }

    /// The pointers of all values in `value`.
    fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        let mut child = |token: &str, value| pointers(value, &format!("{at}/{token}"), found);
        match value {
            Value::Array(values) => {
                values
                    .iter()
                    .enumerate()
                    .for_each(|(index, value)| child(&index.to_string(), value));
            }
            Value::Object(members) => {
                members.iter().for_each(|(name, value)| {
                    child(&name.replace('~', "~0").replace('/', "~1"), value);
                });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn the_scanner_finds_what_a_tree_of_the_values_has() {
        for _ in 0..2_000 {
            let value = random(4);
            let mut found = Vec::new();
            pointers(&value, "", &mut found);
            let texts = [value.to_string(), serde_json::to_string_pretty(&value).unwrap()];
            for (pointer, text) in
                found.iter().flat_map(|at| texts.iter().map(move |text| (at, text)))
            {
                let expected = match value.pointer(pointer).unwrap() {
                    Value::Null => Ok(None),
                    Value::String(text) => Ok(Some(text.clone())),
                    Value::Number(number) => Ok(Some(number.to_string())),
                    Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                        Err(KeyFault::WrongType.to_string())
                    }
                };
                assert_eq!(key(text, pointer), expected, "{pointer} of {text}");
            }
        }
    }

    #[test]
    fn other_types_are_not_keys() {
        for value in ["true", "1.0", "1e3", "-1.5", "[\"k\"]", "{\"k\":1}", "[]", "{}"] {
            let body = format!("{{\"id\":{value}}}");
            assert_eq!(key(&body, "/id"), Err(KeyFault::WrongType.to_string()), "{body}");
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_refused_on_the_path_only() {
        let twice = Err(KeyFault::Repeated.to_string());
        assert_eq!(key(r#"{"id":"a","id":"a"}"#, "/id"), twice);
        assert_eq!(key(r#"{"id":"a","\u0069d":"b"}"#, "/id"), twice);
        assert_eq!(key(r#"{"a":{"id":1},"a":{"id":2}}"#, "/a/id"), twice);
        assert_eq!(key(r#"{"x":1,"x":2,"id":"a"}"#, "/id"), Ok(Some("a".into())));
    }

    #[test]
    fn a_body_that_is_not_json_has_no_readable_key() {
        for body in ["{", "id=1", "{\"id\":\"a\"} x", "{\"id\":\"\\ud800\"}", "\u{feff}{}"] {
            assert_eq!(key(body, "/id"), Err(KeyFault::NotJson.to_string()), "{body}");
        }
        assert!(member(b"{\"x\":\"\xff\",\"id\":1}", "/id").is_err());
        assert!(key(&"[".repeat(1_000), "/0").is_err());
        for body in ["1", "\"id\"", "[]", "{}", "[ ]", "{ }", "null"] {
            assert_eq!(key(body, "/id"), Ok(None), "{body}");
        }
    }
}
