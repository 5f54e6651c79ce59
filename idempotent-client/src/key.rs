//! Keys of operations: how they are made, written to the header, and shown in logs.

use http::{HeaderName, HeaderValue};
use idempotent_http::{
    Key, header_names,
    key::{header_value, parse_key},
};
use uuid::Uuid;

/// The usual name of the header.
pub(crate) const HEADER: HeaderName = HeaderName::from_static(header_names::KEY);

/// A random key: a UUID of version 4, with 122 random bits.
pub(crate) fn random() -> Key {
    Uuid::new_v4().into()
}

/// The value of the header: a UUID without quotes, as the SDKs of most APIs send it.
pub(crate) fn to_header(key: &Key) -> Option<HeaderValue> {
    HeaderValue::try_from(&*header_value(key)).ok()
}

/// The key in a line of the header, if it is written as [`to_header`] writes it. Some servers take
/// a key with quotes and one without them for two keys.
pub(crate) fn from_header(line: &HeaderValue) -> Option<Key> {
    let key = parse_key(line.as_bytes()).ok()?;
    (header_value(&key).as_bytes() == line.as_bytes()).then_some(key)
}

/// The first characters, for logs and errors; none of a short key. A key gives access to a
/// response.
pub(crate) fn short(key: &Key) -> &str {
    key.as_str().get(..8).filter(|_| key.as_str().len() >= 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_keys_are_uuids_of_version_4_and_differ() {
        let keys: std::collections::HashSet<_> = (0..1000).map(|_| random()).collect();
        assert_eq!(keys.len(), 1000);
        let uuid = Uuid::parse_str(random().as_str()).unwrap();
        assert_eq!(uuid.get_version_num(), 4);
    }

    #[test]
    fn a_key_of_a_header_is_written_as_it_was_read() {
        for valid in ["k", "order-17", "\"a b\"", &"k".repeat(255)] {
            let line = HeaderValue::from_str(valid).unwrap();
            assert_eq!(to_header(&from_header(&line).unwrap()), Some(line));
        }
        for invalid in ["", "a b", "\"k\"", "a,b", "\"a b\";v=1", &"k".repeat(256)] {
            let line = HeaderValue::from_str(invalid).unwrap();
            assert_eq!(from_header(&line), None, "{invalid:?}");
        }
    }

    #[test]
    fn a_log_does_not_show_the_whole_key() {
        assert_eq!(short(&"0123456789abcdef".parse().unwrap()), "01234567");
        assert_eq!(short(&"order-17".parse().unwrap()), "");
    }
}
