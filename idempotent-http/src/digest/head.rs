//! What of a request's query and content type counts.

use std::borrow::Cow;

/// How the query contributes to the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryForm {
    /// The text as sent.
    #[default]
    Exact,
    /// The order of parameters with different names does not count. That of parameters with the
    /// same name does: a handler may read them as a list, or only the first or the last.
    Unordered,
}

/// How the content type contributes to the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentTypeForm {
    /// The text as sent.
    #[default]
    Exact,
    /// The notation does not count: the case of the type and of the names of parameters, space
    /// around semicolons, quotes that are not needed, the order of parameters (RFC 9110 §8.3.1),
    /// and the case of `charset`. With JSON, neither does `charset=utf-8` (RFC 8259 §11).
    Equivalent,
    /// Nothing of it.
    Ignored,
}

impl QueryForm {
    /// Returns the form in the words of the specification and of the attribute's `query`.
    #[must_use]
    pub const fn specified(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Unordered => "unordered",
        }
    }

    /// Returns the text that stands for this query in a digest.
    #[must_use]
    pub fn of(self, query: &str) -> Cow<'_, str> {
        if self == Self::Exact || !query.contains('&') {
            return query.into();
        }
        let mut parameters: Vec<_> = query.split('&').collect();
        // Stable: keeps the order of parameters with the same name.
        parameters.sort_by_cached_key(|parameter| name_of(parameter));
        parameters.join("&").into()
    }
}

/// The name of a parameter, as a handler reads it: two notations of one name are the same name.
fn name_of(parameter: &str) -> String {
    let name = parameter.split('=').next().unwrap_or_default();
    let pair = form_urlencoded::parse(name.as_bytes()).next();
    pair.map_or_else(String::new, |(name, _)| name.into_owned())
}

impl ContentTypeForm {
    /// Returns the form in the words of the specification and of the attribute's `content_type`.
    #[must_use]
    pub const fn specified(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Equivalent => "equivalent",
            Self::Ignored => "ignored",
        }
    }

    /// Returns the text that stands for this value of `Content-Type` in a digest: the value itself,
    /// if it is no media type.
    #[must_use]
    pub fn of(self, content_type: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Exact => return content_type.into(),
            Self::Ignored => return Cow::default(),
            Self::Equivalent => {}
        }
        let text = std::str::from_utf8(content_type).ok();
        text.and_then(equivalent).map_or(content_type.into(), |text| text.into_bytes().into())
    }
}

/// The one notation of a media type; `None` if its grammar is that of no media type.
fn equivalent(text: &str) -> Option<String> {
    let mut parts = split(text)?.into_iter();
    let essence = parts.next()?.trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    if !is_token(kind) || !is_token(subtype) {
        return None;
    }
    let is_json = essence == "application/json" || subtype.ends_with("+json");
    let mut parameters = Vec::new();
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=')?;
        let (name, mut value) = (name.to_ascii_lowercase(), unquoted(value)?);
        if !is_token(&name) || parameters.iter().any(|(other, _)| *other == name) {
            return None;
        }
        if name == "charset" {
            value.make_ascii_lowercase();
        }
        parameters.push((name, value));
    }
    parameters.retain(|(name, value)| !(is_json && name == "charset" && value == "utf-8"));
    parameters.sort_unstable();
    let parameters = parameters.iter().map(|(name, value)| {
        if is_token(value) { format!("; {name}={value}") } else { format!("; {name}={value:?}") }
    });
    Some(parameters.fold(essence.clone(), |text, parameter| text + &parameter))
}

/// The parts between semicolons that are not in quotes; `None` if a quote is not closed.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(|character| {
        let is_end = character == ';' && !quoted;
        if character == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && character == '\\' && !escaped;
        is_end
    });
    let parts = parts.collect();
    (!quoted).then_some(parts)
}

/// The value of a parameter: a token, or what a quoted string stands for (RFC 9110 §5.6.4).
fn unquoted(value: &str) -> Option<String> {
    let Some(quoted) = value.strip_prefix('"') else {
        return is_token(value).then(|| value.to_owned());
    };
    let (mut text, mut characters) = (String::new(), quoted.strip_suffix('"')?.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.push(characters.next()?),
            '"' => return None,
            character => text.push(character),
        }
    }
    Some(text)
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_order_of_different_names_does_not_count() {
        let of = |query| QueryForm::Unordered.of(query).into_owned();
        for (one, other) in [
            ("a=1&b=2", "b=2&a=1"),
            ("b&a=1&b=2", "a=1&b&b=2"),
            ("a=1&&b=2", "a=1&b=2&"),
            ("%61=1&b=2&a=3", "b=2&%61=1&a=3"),
        ] {
            assert_eq!(of(one), of(other), "{one} and {other}");
        }
        for (one, other) in [
            ("a=1&a=2", "a=2&a=1"),
            ("%61=1&a=2", "a=2&%61=1"),
            ("a+b=1&a%20b=2", "a%20b=2&a+b=1"),
            ("%FF=1&%FE=2", "%FE=2&%FF=1"),
            ("a=1&b=2", "a=2&b=1"),
            ("a=%31", "a=1"),
            ("a=1&b=2", "a=1;b=2"),
            ("a=1&b", "a=1&b="),
            ("%zz=1&%4=2", "%zz=2&%4=1"),
        ] {
            assert_ne!(of(one), of(other), "{one} and {other}");
        }
        assert_eq!(of("a=1"), "a=1");
        assert_eq!(QueryForm::Exact.of("b=2&a=1"), "b=2&a=1");
    }

    #[test]
    fn notations_of_one_media_type_are_equal() {
        let of = |text: &str| {
            String::from_utf8(ContentTypeForm::Equivalent.of(text.as_bytes()).into_owned()).unwrap()
        };
        for (one, other) in [
            ("application/json", "application/json; charset=utf-8"),
            ("application/json", "Application/JSON;Charset=\"UTF-8\""),
            ("application/json", "application/json;"),
            ("application/merge-patch+json", "application/merge-patch+json;charset=utf-8"),
            ("text/plain; charset=utf-8", "text/plain;charset=UTF-8"),
            ("a/b; x=1; y=\"a;\\\"b\"", "a/b;y=\"a;\\\"b\";x=\"1\""),
        ] {
            assert_eq!(of(one), of(other), "{one} and {other}");
        }
        for (one, other) in [
            ("application/json", "application/json; charset=utf-16"),
            ("application/json", "application/json; version=2"),
            ("text/plain", "text/plain; charset=utf-8"),
            ("a/b; x=Y", "a/b; x=y"),
            ("a/b; x=1; x=2", "a/b; x=2; x=1"),
            ("a/b; x=\"1;y=2\"", "a/b; x=1; y=2"),
            ("application/json, text/plain", "application/json"),
            ("application/json; charset=\"utf-8", "application/json"),
            ("application/json; charset", "application/json"),
            ("", "application/json"),
        ] {
            assert_ne!(of(one), of(other), "{one} and {other}");
        }
        assert_eq!(of("application/json"), "application/json", "the usual value is unchanged");
        assert_eq!(ContentTypeForm::Exact.of(b"A/B"), &b"A/B"[..]);
        assert_eq!(ContentTypeForm::Ignored.of(b"A/B"), &b""[..]);
        assert_eq!(ContentTypeForm::Equivalent.of(b"\xff"), &b"\xff"[..]);
    }
}
