//! The names of operations, as records have them.

use std::borrow::Cow;

use actix_web::{
    HttpRequest,
    dev::{Path, Url},
    http::Method,
};

use crate::declaration::Declaration;
#[cfg(feature = "metrics")]
use crate::declaration::{Route, annotated};

/// The full name of an operation whose requests match this pattern.
///
/// A default service matches no pattern; the handler's name separates it from others.
pub(crate) fn name_of(
    operation: &'static Declaration,
    method: &Method,
    pattern: Option<&str>,
) -> Cow<'static, str> {
    if !operation.name.is_empty() {
        return operation.name.into();
    }
    [method.as_str(), " ", pattern.unwrap_or(operation.handler)].concat().into()
}

/// The path of a request stands for its pattern in the name of its operation.
pub(crate) struct NamedByPath;

/// The full pattern of the resource of a request; `None` if it is not known. Of several patterns of
/// one resource only the first is known, so the path of a request that does not fit it stands for
/// its pattern, unless the attribute has a `name`.
pub(crate) fn pattern_of(
    operation: &Declaration,
    request: &HttpRequest,
) -> Result<Option<String>, NamedByPath> {
    match request.match_pattern() {
        Some(pattern) if is_pattern_of(&pattern, request.match_info()) => Ok(Some(pattern)),
        Some(_) if operation.name.is_empty() => Err(NamedByPath),
        _ => Ok(None),
    }
}

/// Whether a path consists of the literal parts of the pattern and the values of its dynamic
/// segments.
fn is_pattern_of(pattern: &str, path: &Path<Url>) -> bool {
    let (mut rest, mut pattern) = (path.as_str(), pattern);
    for (_, value) in path.iter() {
        let Some((literal, segment)) = pattern.split_once('{') else { return false };
        let mut depth = 1u32;
        let end = segment.char_indices().find_map(|(at, character)| {
            match character {
                '{' => depth = depth.saturating_add(1),
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0).then_some(at)
        });
        let after = end.and_then(|end| segment.get(end..)).and_then(|end| end.strip_prefix('}'));
        let left = rest.strip_prefix(literal).and_then(|rest| rest.strip_prefix(value));
        let (Some(after), Some(left)) = (after, left) else { return false };
        // A tail segment is `{name}*`.
        (pattern, rest) = (after.strip_prefix('*').unwrap_or(after), left);
    }
    pattern == rest
}

/// The name of the operation of a request that was refused before its handler was known: of the one
/// annotated handler whose route attribute names its resource so.
#[cfg(feature = "metrics")]
pub(crate) fn operation_of(request: &HttpRequest) -> Option<Cow<'static, str>> {
    let (name, method) = (request.match_name()?, request.method().as_str());
    let serves = |route: &Route| {
        route.method == method && route.resource.is_some_and(|resource| resource.name == name)
    };
    let mut found = annotated().filter(|operation| operation.routes.iter().any(serves));
    let operation = found.next().filter(|_| found.next().is_none())?;
    let pattern = pattern_of(operation, request).ok()?;
    Some(name_of(operation, request.method(), pattern.as_deref()))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn fits(pattern: &str, path: &str, values: &[&'static str]) -> bool {
        let request = TestRequest::with_uri(path);
        let request = values.iter().fold(request, |request, value| request.param("name", *value));
        is_pattern_of(pattern, request.to_http_request().match_info())
    }

    #[test]
    fn a_path_fits_the_pattern_that_has_matched_it() {
        assert!(fits("/orders", "/orders", &[]));
        assert!(fits("/{a}/b-{c:[0-9]{1,2}}", "/x/b-7", &["x", "7"]));
        assert!(fits("/files/{tail}*", "/files/a/b", &["a/b"]));
        assert!(!fits("/charges/{id}", "/refunds/7", &["7"]));
        assert!(!fits("/orders", "/orders/", &[]));
        assert!(!fits("/orders/{id}", "/orders/7/x", &["7"]));
    }
}
