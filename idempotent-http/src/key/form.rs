//! A key in a field of an HTML form.

use super::fault::KeyFault;

/// The type of the bodies that browsers send for a form without files.
pub(super) const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// The value of a field, decoded as the URL standard says (`+` is a space). Bytes that are not
/// UTF-8 become a character that no key may have.
pub(super) fn field(body: &[u8], name: &str) -> Result<Option<String>, KeyFault> {
    let mut values = form_urlencoded::parse(body).filter(|(field, _)| field == name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some((_, value)), None) => Ok(Some(value.into_owned())),
        (Some(_), Some(_)) => Err(KeyFault::Repeated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(body: &str) -> Result<Option<String>, KeyFault> {
        field(body.as_bytes(), "a key")
    }

    #[test]
    fn names_and_values_are_decoded() {
        for (body, value) in [
            ("a+key=k", Some("k")),
            ("x=1&a%20key=%22k%22+%2B&y=2", Some("\"k\" +")),
            ("a+key=k=1", Some("k=1")),
            ("a+key", Some("")),
            ("a+key=", Some("")),
            ("a+key=%FF", Some("\u{fffd}")),
            ("a+key=%4", Some("%4")),
            ("A+key=k", None),
            ("a key%00=k", None),
            ("x=a+key", None),
            ("&&", None),
        ] {
            assert_eq!(key(body).unwrap().as_deref(), value, "{body}");
        }
    }

    #[test]
    fn two_fields_are_two_keys() {
        for body in ["a+key=k&a+key=k", "a+key=k&x=1&a%20key=", "a+key&a+key"] {
            assert!(matches!(key(body), Err(KeyFault::Repeated)), "{body}");
        }
    }
}
