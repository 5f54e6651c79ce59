//! Compares the paths of a document with the patterns of a server.

/// How a pattern fits the path of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// They cannot be the same resource.
    Contradicts,
    /// They can be, and nothing says so.
    Unknown,
    /// One is the end of the other: scopes, or the base URL of the document, are above it.
    Suffix,
    /// They have the same structure.
    Exact,
}

/// Compares a pattern with the path of a document. The names of parameters and the expressions that
/// restrict them do not count.
pub(super) fn fit(pattern: &str, path: &str) -> Fit {
    let (pattern, path) = (structure(pattern), structure(path));
    if pattern == path {
        return Fit::Exact;
    }
    let shorter = if pattern.len() < path.len() { &pattern } else { &path };
    if !pattern.ends_with(shorter) || !path.ends_with(shorter) {
        return Fit::Contradicts;
    }
    // `/` and `/{id}` end the path of any resource.
    let says_something = shorter.iter().any(|segment| !segment.is_empty() && segment != "{}");
    if says_something { Fit::Suffix } else { Fit::Unknown }
}

/// The segments of a path, each parameter as `{}`. An expression may contain braces and slashes.
fn structure(path: &str) -> Vec<String> {
    let (mut flat, mut depth) = (String::new(), 0u32);
    for character in path.chars() {
        match character {
            '{' => depth = depth.saturating_add(1),
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    flat.push_str("{}");
                }
            }
            // A tail segment is `{name}*`.
            '*' if depth == 0 && flat.ends_with("{}") => {}
            character if depth == 0 => flat.push(character),
            _ => {}
        }
    }
    let flat = flat.strip_prefix('/').unwrap_or(&flat);
    if flat.is_empty() { Vec::new() } else { flat.split('/').map(str::to_owned).collect() }
}

/// The name of the parameter of `path` that is at the place of `{key}` in the pattern.
pub(super) fn key_parameter<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let from_end = pattern.rsplit('/').position(|segment| segment.starts_with("{key"))?;
    let segment = path.rsplit('/').nth(from_end)?;
    segment.strip_prefix('{')?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_by_their_structure() {
        for (pattern, path, expected) in [
            ("/orders", "/orders", Fit::Exact),
            ("orders", "/orders", Fit::Exact),
            ("/orders/{id}", "/orders/{order_id}", Fit::Exact),
            (r"/orders/{id:\d{1,9}}", "/orders/{id}", Fit::Exact),
            ("/files/{tail:.*/x}", "/files/{tail}", Fit::Exact),
            ("/files/{tail}*", "/files/{tail}", Fit::Exact),
            ("/orders", "/v1/orders", Fit::Suffix),
            ("/api/v1/orders", "/orders", Fit::Suffix),
            ("/orders/{id}/refunds", "/v1/orders/{order}/refunds", Fit::Suffix),
            ("/{id}", "/orders/{id}", Fit::Unknown),
            ("", "/orders", Fit::Unknown),
            ("/", "/", Fit::Exact),
            ("/orders", "/orders/", Fit::Contradicts),
            ("/orders", "/reorders", Fit::Contradicts),
            ("/orders/{id}", "/orders/new", Fit::Contradicts),
            ("/v1/orders", "/v2/orders", Fit::Contradicts),
        ] {
            assert_eq!(fit(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_key_of_a_lookup_may_have_another_name() {
        let name = |path| key_parameter("/keys/{key}/state", path);
        assert_eq!(name("/v1/keys/{idempotency_key}/state"), Some("idempotency_key"));
        assert_eq!(name("/v1/keys/17/state"), None);
    }
}
