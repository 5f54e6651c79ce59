//! Which store a URL names.

use std::{error::Error as _, fmt};

use crate::error::StoreError;

/// The URL schemes, each with the Cargo feature of its store.
const KNOWN: [(&str, &str); 13] = [
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
    ("redis", "redis"),
    ("redis+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss", "redis-tls"),
    ("rediss+sentinel", "redis-tls"),
    ("rediss+cluster", "redis-tls"),
    ("dynamodb", "dynamodb"),
];

/// Returns the scheme of a URL.
///
/// # Errors
/// Fails with [`ConnectError::NoScheme`] if the URL has none.
pub fn scheme(url: &str) -> Result<&str, ConnectError> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    scheme.filter(|scheme| is_scheme(scheme)).ok_or(ConnectError::NoScheme)
}

/// Whether a text is a scheme (RFC 3986 §3.1). In a misspelled URL, the text before the first `:`
/// can contain a password.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// The reason why a program that opens stores by URL could not open one.
///
/// The `Debug` output is meant to be read: it consists of the message and its causes.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL has no scheme.
    #[error("a store's URL starts with a scheme, such as `memory:` or `sqlite:FILE`")]
    NoScheme,
    /// No store has this scheme.
    #[error("no store has the scheme `{scheme}:`; known schemes are {}", known_schemes())]
    UnknownScheme {
        /// The text before the first `:`.
        scheme: String,
    },
    /// The store exists, but this program was built without it.
    #[error(
        "`{scheme}:` needs the Cargo feature `{feature}`, which this program was built without"
    )]
    NotCompiledIn {
        /// The URL's scheme.
        scheme: &'static str,
        /// The Cargo feature to enable.
        feature: &'static str,
    },
    /// The URL of the memory store has more than the scheme.
    #[error("the URL of the memory store is `memory:`, without a name and without parameters")]
    NotMemory,
    /// The store could not be opened.
    #[error("the store cannot be opened")]
    Store(#[source] StoreError),
}

impl ConnectError {
    /// The error of a scheme that the program does not open: the store is not compiled in, or there
    /// is none.
    #[must_use]
    pub fn unavailable(scheme: &str) -> Self {
        match KNOWN.into_iter().find(|(known, _)| *known == scheme) {
            Some((scheme, feature)) => Self::NotCompiledIn { scheme, feature },
            None => Self::UnknownScheme { scheme: scheme.to_owned() },
        }
    }
}

impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.to_string();
        f.write_str(&shown)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            // Some errors repeat their cause.
            let message = error.to_string();
            if !shown.contains(&message) {
                write!(f, ": {message}")?;
            }
            (shown, cause) = (message, error.source());
        }
        Ok(())
    }
}

fn known_schemes() -> String {
    KNOWN.map(|(scheme, _)| format!("`{scheme}:`")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_compiled_in_is_named_with_its_feature() {
        for (known, feature) in KNOWN {
            assert_eq!(scheme(&format!("{known}:rest")).unwrap(), known);
            let error = ConnectError::unavailable(known);
            assert!(matches!(error, ConnectError::NotCompiledIn { .. }), "{error:?}");
            let message = error.to_string();
            let named = [known, feature].map(|name| message.contains(&format!("`{name}")));
            assert_eq!(named, [true; 2], "{message}");
        }
        let error = ConnectError::unavailable("oracle");
        assert!(matches!(error, ConnectError::UnknownScheme { .. }), "{error:?}");
    }

    #[test]
    fn no_part_of_a_misspelled_url_is_taken_for_a_scheme() {
        for url in ["", "sqlite", "user hunter2:", "hunter/2:x", ":x", "1a:x"] {
            let error = scheme(url).unwrap_err();
            assert!(matches!(error, ConnectError::NoScheme), "{url}");
            assert!(!format!("{error:?} {error}").contains("hunter"));
        }
    }
}
