//! The namespace in a store's URL.

use std::sync::Arc;

use crate::error::StoreError;

const PARAMETER: &str = "namespace=";
const MAX: usize = 64;

/// Removes the parameter `namespace` from a store's URL, since no database client knows it, and
/// returns its value.
pub fn split(store: &'static str, url: &str) -> Result<(String, Option<Arc<str>>), StoreError> {
    let (url, namespaces) = take(PARAMETER, url);
    let invalid = || StoreError::permanent(store, "connect", InvalidNamespace);
    match namespaces.as_slice() {
        [] => Ok((url, None)),
        [one] => {
            Ok((url, Some(Some(*one).filter(|name| is_valid(name)).ok_or_else(invalid)?.into())))
        }
        _ => Err(invalid()),
    }
}

/// Removes a parameter (`name=`) from a URL; returns the remaining URL and the parameter's values.
pub fn take<'a>(parameter: &str, url: &'a str) -> (String, Vec<&'a str>) {
    let Some((address, query)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let (found, others): (Vec<_>, Vec<_>) =
        query.split('&').partition(|pair| pair.starts_with(parameter));
    let url = if others.is_empty() {
        address.to_owned()
    } else {
        format!("{address}?{}", others.join("&"))
    };
    (url, found.into_iter().filter_map(|pair| pair.strip_prefix(parameter)).collect())
}

fn is_valid(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// The URL's parameter `namespace` has an invalid value, or occurs more than once.
#[derive(Debug, thiserror::Error)]
#[error(
    "the URL's parameter `namespace` must be given once, with 1 to {MAX} ASCII letters, digits, \
     `.`, `_` or `-`"
)]
struct InvalidNamespace;

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_namespace_is_taken_out_of_the_url() {
        for (url, rest, namespace) in [
            ("redis://h/0", "redis://h/0", None),
            ("redis://h/0?namespace=shop", "redis://h/0", Some("shop")),
            ("sqlite:a.db?mode=rw&namespace=shop-2.b_c", "sqlite:a.db?mode=rw", Some("shop-2.b_c")),
            (
                "postgres://h/d?namespace=s&sslmode=require",
                "postgres://h/d?sslmode=require",
                Some("s"),
            ),
            ("postgres://h/d?my_namespace=s", "postgres://h/d?my_namespace=s", None),
        ] {
            let (found, name) = split("redis", url).unwrap();
            assert_eq!((found.as_str(), name.as_deref()), (rest, namespace), "{url}");
        }
    }

    #[test]
    fn a_namespace_that_could_be_misread_is_refused() {
        let long = format!("redis://h?namespace={}", "x".repeat(65));
        for url in [
            "redis://h?namespace=",
            "redis://h?namespace=a%20b",
            "redis://h?namespace=a&namespace=a",
            &long,
        ] {
            let error = split("redis", url).unwrap_err();
            assert!(
                !error.is_transient()
                    && error.source().unwrap().to_string().contains("`namespace`"),
                "{url}"
            );
        }
    }
}
