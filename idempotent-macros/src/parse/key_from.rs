//! The values of `key_from`: where the key of a request is.

use syn::{ExprPath, LitStr};

use super::entry::AttributeKey;
use super::nearest::nearest;
use crate::errors::ValueResult;

/// Where the key of a request is.
pub(crate) enum KeyPlace {
    /// A place that the runtime crate can read, and the name of the key there.
    Supplied(Place, String),
    /// A path to the user's function.
    Custom(ExprPath),
}

/// A place in a request.
pub(crate) struct Place {
    /// As the user writes it, before the colon.
    word: &'static str,
    /// The runtime's variant.
    pub(crate) variant: &'static str,
    /// A name for the help.
    example: &'static str,
    /// What to write after the colon.
    advice: &'static str,
    /// What is wrong with a name that is not empty.
    check: fn(&str) -> Result<(), &'static str>,
}

const PLACES: [Place; 3] = [
    Place {
        word: "header",
        variant: "Header",
        example: "webhook-id",
        advice: "write the name of one request header after `header:`",
        check: header,
    },
    Place {
        word: "form",
        variant: "Form",
        example: "idempotency_key",
        advice: "write the `name` of the form's input after `form:`",
        check: |_| Ok(()),
    },
    Place {
        word: "json",
        variant: "Json",
        example: "/id",
        advice: "write a JSON pointer (RFC 6901) after `json:`",
        check: pointer,
    },
];

impl KeyPlace {
    /// Whether the key is in the body. A function may read it elsewhere.
    pub(crate) fn in_body(&self) -> bool {
        matches!(self, Self::Supplied(Place { variant: "Form" | "Json", .. }, _))
    }
}

/// A place and a name, such as `header:webhook-id`, or a path.
pub(super) fn key_from(key: &AttributeKey, text: &LitStr) -> ValueResult<KeyPlace> {
    let value = text.value();
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let split = value.split_once(':');
    let split = split.filter(|(word, name)| is_word(word) && !name.starts_with(':'));
    let Some((word, name)) = split else { return path(key, text, &value) };
    let Some(place) = PLACES.into_iter().find(|place| place.word == word) else {
        let what = format!(
            "`{word}` is not a place of keys; \
                write `header:…`, `form:…`, `json:…` or a path to a function"
        );
        let meant = nearest(word, PLACES.map(|place| place.word));
        let help = meant.map(|meant| format!("write `{} = \"{meant}:{name}\"`", key.name));
        return Err((what, help.unwrap_or_else(|| key.example())));
    };
    if name.trim().is_empty() {
        return Err(nameless(key, &place));
    }
    (place.check)(name).map_err(|wrong| {
        let misses_slash = word == "json" && pointer(&format!("/{name}")).is_ok();
        let meant = if misses_slash { format!("/{name}") } else { place.example.to_owned() };
        (format!("`{name}` {wrong}"), format!("write `{} = \"{word}:{meant}\"`", key.name))
    })?;
    // Header names are case-insensitive.
    let name = if word == "header" { name.to_ascii_lowercase() } else { name.to_owned() };
    Ok(KeyPlace::Supplied(place, name))
}

/// A path to a function. A place without a name is a mistake, not a path.
fn path(key: &AttributeKey, text: &LitStr, value: &str) -> ValueResult<KeyPlace> {
    let place = PLACES.into_iter().find(|place| place.word.eq_ignore_ascii_case(value));
    if let Some(place) = place {
        return Err(nameless(key, &place));
    }
    text.parse().map(KeyPlace::Custom).map_err(|_| {
        let what = format!(
            "`{value}` is not a value of `{}`; \
                write `header:…`, `form:…`, `json:…` or a path to a function",
            key.name
        );
        let help = if header(value).is_ok() {
            format!("write `{} = \"header:{value}\"`", key.name)
        } else {
            key.example()
        };
        (what, help)
    })
}

fn nameless(key: &AttributeKey, Place { word, example, advice, .. }: &Place) -> (String, String) {
    let help = format!("write `{} = \"{word}:{example}\"`", key.name);
    (format!("`{word}` has no name; {advice}"), help)
}

/// RFC 9110 §5.6.2.
fn header(name: &str) -> Result<(), &'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.bytes().all(is_token) {
        return Ok(());
    }
    Err("is not a header name; write the name of one request header after `header:`")
}

/// RFC 6901 §3.
pub(super) fn pointer(pointer: &str) -> Result<(), &'static str> {
    if !pointer.starts_with('/') {
        return Err("is not a JSON pointer (RFC 6901); write a `/` before the name of each member");
    }
    let mut escapes = pointer.split('~').skip(1);
    if escapes.all(|rest| rest.starts_with(['0', '1'])) {
        return Ok(());
    }
    Err("has a `~` that is not an escape (RFC 6901); \
        write `~0` for `~`, and `~1` for `/` in a name")
}

#[cfg(test)]
mod tests {
    use super::{header, pointer};

    #[test]
    fn pointers_and_header_names_follow_their_rfcs() {
        for (text, right) in [
            ("/id", true),
            ("/", true),
            ("/data/0/~0~1x", true),
            ("/é ü", true),
            ("", false),
            ("id", false),
            ("/~", false),
            ("/~2", false),
            ("/a~0~", false),
        ] {
            assert_eq!(pointer(text).is_ok(), right, "{text}");
        }
        for (text, right) in [
            ("webhook-id", true),
            ("X_1.2!", true),
            ("a b", false),
            ("a:b", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(header(text).is_ok(), right, "{text}");
        }
    }
}
