//! What is verified of a store's URL before it is parsed, and which store it names.

use super::nearest::nearest;
use crate::error::StoreError;

mod scheme;

pub use scheme::{ConnectError, scheme};

/// Refuses a URL of a server in which the user or the password is not percent-encoded, so that its
/// parts are not what they seem to be, and a parameter that the store does not know.
pub fn verify_server(store: &'static str, url: &str, known: &[&str]) -> Result<(), StoreError> {
    let refuse = |invalid: InvalidUrl| Err(StoreError::permanent(store, "connect", invalid));
    let after_host = url.split_once("://").map_or("", |(_, rest)| {
        rest.find(['/', '?', '#']).and_then(|end| rest.get(end..)).unwrap_or_default()
    });
    let (path, query) = after_host.split_once('?').unwrap_or((after_host, ""));
    if url.contains('#') || path.contains('@') || url.contains(char::is_control) {
        return refuse(InvalidUrl::NotEncoded);
    }
    match verify_names(query, known) {
        // What looks like a parameter may be the rest of a password.
        Some(_) if query.contains('@') => refuse(InvalidUrl::NotEncoded),
        Some(unknown) => refuse(unknown),
        None => Ok(()),
    }
}

/// Refuses a parameter that the store does not know, in the URL of a file.
pub fn verify_file(store: &'static str, url: &str, known: &[&str]) -> Result<(), StoreError> {
    let (_, query) = url.split_once('?').unwrap_or((url, ""));
    verify_names(query, known)
        .map_or(Ok(()), |unknown| Err(StoreError::permanent(store, "connect", unknown)))
}

/// A name in `known` that ends with `[`, encoded or not, is the start of a name.
fn verify_names(query: &str, known: &[&str]) -> Option<InvalidUrl> {
    let names = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = names.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    let is_known = |name: &str| {
        known
            .iter()
            .any(|known| *known == name || known.ends_with(['[', 'B']) && name.starts_with(known))
    };
    let unknown = names.find(|name| !is_known(name))?;
    if unknown == "namespace" {
        return Some(InvalidUrl::Namespace);
    }
    Some(match nearest(unknown, known.iter().copied()) {
        Some(nearest) => {
            InvalidUrl::Misspelled { name: unknown.to_owned(), nearest: nearest.to_owned() }
        }
        None => InvalidUrl::UnknownParameter { known: known.join("`, `") },
    })
}

/// Why a URL is refused. Of the URL it contains only what differs little from a known name.
#[derive(Debug, thiserror::Error)]
enum InvalidUrl {
    #[error("the URL's parameter `{name}` is unknown; write `{nearest}`")]
    Misspelled { name: String, nearest: String },
    #[error("the URL has an unknown parameter; the parameters are `{known}`")]
    UnknownParameter { known: String },
    #[error(
        "`namespace` is no parameter of a URL; set it on the builder: \
         `Idempotency::builder(store).namespace(…)`"
    )]
    Namespace,
    #[error(
        "the URL has `#`, `@`, `/`, `?` or a control character where none can be; write such \
         characters of the user and the password percent-encoded: `%23`, `%40`, `%2F`, `%3F`"
    )]
    NotEncoded,
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    const KNOWN: [&str; 4] = ["protocol", "sslmode", "user", "options["];

    fn refusal(url: &str) -> Option<String> {
        verify_server("redis", url, &KNOWN).err().map(|error| error.source().unwrap().to_string())
    }

    #[test]
    fn known_parameters_are_accepted() {
        for url in [
            "redis://h",
            "redis://u:p@ss@h/0?protocol=resp3",
            "postgres://u:p%23%2F%3F@h/d?user=me@corp&options[a]=b&sslmode=x",
            "postgres://h/d?",
            "redis+cluster://u:p@one,two:7000",
        ] {
            assert_eq!(refusal(url), None, "{url}");
        }
    }

    #[test]
    fn a_misspelled_parameter_is_named_with_the_nearest_one() {
        let refused = refusal("redis://h?protcol=resp3").unwrap();
        assert!(refused.contains("`protcol`") && refused.contains("`protocol`"), "{refused}");
        let refused = refusal("redis://h?hunter2=1").unwrap();
        assert!(!refused.contains("hunter2") && refused.contains("`sslmode`"), "{refused}");
        let refused = refusal("redis://h?namespace=shop").unwrap();
        assert!(refused.contains("builder(store).namespace("), "{refused}");
    }

    #[test]
    fn no_part_of_a_password_that_is_not_encoded_is_shown() {
        for rest in ["qz#zq", "qz/zq", "12/zq", "qz?zq", "12?usr", "12?usr=1", "q\tzq"] {
            let refused = refusal(&format!("redis://u:{rest}@h/0")).unwrap();
            let shown = ["qz", "zq", "usr"].iter().any(|part| refused.contains(part));
            assert!(refused.contains("percent-encoded") && !shown, "{refused}");
        }
    }
}
