//! The value of an `Idempotency-Key` header line.

use idempotent_http::{Key, key::parse_key};
use sfv::{BareItem, Parser};

/// Input: the value.
pub(crate) fn run(value: &[u8]) {
    let expected = expected(value.trim_ascii());
    match parse_key(value) {
        Err(error) => {
            assert_eq!(expected, None, "refused: {error}");
            assert!(error.to_string().is_ascii());
        }
        Ok(key) => {
            assert_eq!(Some(key.as_str()), expected.as_deref());
            has_each_form(&key);
        }
    }
}

/// The key in a value without spaces around it, as another parser of RFC 9651 reads it.
fn expected(value: &[u8]) -> Option<String> {
    let key = if value.starts_with(b"\"") {
        let item = Parser::new(value).parse::<sfv::Item>().ok()?.bare_item;
        let BareItem::String(string) = item else { panic!("another item begins with a quote") };
        String::from(string)
    } else {
        let token = String::from_utf8(value.to_vec()).ok()?;
        token.chars().all(is_allowed_in_a_bare_key).then_some(token)?
    };
    (1..=255).contains(&key.len()).then_some(key)
}

fn is_allowed_in_a_bare_key(char: char) -> bool {
    char.is_ascii_graphic() && !matches!(char, '"' | ',')
}

/// All spellings of a key are that key.
fn has_each_form(key: &Key) {
    let text = key.as_str();
    assert!((1..=Key::MAX_BYTES).contains(&text.len()));
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    for spelling in [quoted.clone(), format!(" \t{quoted};a=\"\\\"\";b ")] {
        assert_eq!(parse_key(spelling.as_bytes()).as_ref(), Ok(key), "{spelling}");
    }
    // What a proxy makes of two header lines.
    let is_two = |two: String| assert!(parse_key(two.as_bytes()).is_err(), "{two}");
    is_two(format!("{quoted}, {quoted}"));
    if text.chars().all(is_allowed_in_a_bare_key) {
        assert_eq!(parse_key(text.as_bytes()).as_ref(), Ok(key));
        is_two(format!("{text}, {text}"));
    }
}
