//! Opening a store by its URL.

use std::{error::Error as _, fmt, sync::Arc};

use idempotent_core::{Store, StoreError};

/// The URL schemes, each with the Cargo feature of its store.
const KNOWN: [(&str, &str); 10] = [
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("redis", "redis"),
    ("redis+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss", "redis-tls"),
    ("rediss+sentinel", "redis-tls"),
    ("rediss+cluster", "redis-tls"),
];

/// Opens the store that a URL names, so that a deployment can choose the store:
///
/// * `memory:`
/// * `sqlite:FILE` or `sqlite://FILE`
/// * `postgres://USER@HOST/DATABASE` or `postgresql://…`
/// * `redis://…`, `redis+sentinel://…` or `redis+cluster://…`; with TLS `rediss` instead of `redis`
///
/// Each store needs the Cargo feature of its name; TLS for Redis needs `redis-tls`.
/// `SqliteStore::connect`, `PostgresStore::connect` and `RedisStore::connect` document the
/// parameters of their URLs.
///
/// Call [`migrate`](Store::migrate) on the store before the first claim.
///
/// # Errors
/// Fails with a [`ConnectError`] if the URL has an unknown scheme, if the store is not compiled in,
/// or if it cannot be opened. The error shows only the scheme of the URL, because the rest can
/// contain a password.
///
/// # Examples
/// ```
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let store = idempotent_actix::store::connect("memory:").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let (scheme, _) = url
        .split_once(':')
        .filter(|(scheme, _)| is_scheme(scheme))
        .ok_or(ConnectError::NoScheme)?;
    match scheme {
        #[cfg(feature = "memory")]
        "memory" if url == "memory:" => {
            Ok(Arc::new(idempotent_core::store::memory::MemoryStore::new()))
        }
        #[cfg(feature = "memory")]
        "memory" => Err(ConnectError::NotMemory),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let store = idempotent_sqlite::SqliteStore::connect(url).await;
            store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let store = idempotent_postgres::PostgresStore::connect(url).await;
            store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
        }
        #[cfg(feature = "redis")]
        "redis" | "redis+sentinel" | "redis+cluster" => redis(url).await,
        #[cfg(feature = "redis-tls")]
        "rediss" | "rediss+sentinel" | "rediss+cluster" => redis(url).await,
        _ => Err(unavailable(scheme)),
    }
}

/// Whether a text is a scheme (RFC 3986 §3.1). In a misspelled URL, the text before the first `:`
/// can contain a password.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let store = idempotent_redis::RedisStore::connect(url).await;
    store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
}

fn unavailable(scheme: &str) -> ConnectError {
    match KNOWN.into_iter().find(|(known, _)| *known == scheme) {
        Some((scheme, feature)) => ConnectError::NotCompiledIn { scheme, feature },
        None => ConnectError::UnknownScheme { scheme: scheme.to_owned() },
    }
}

/// The error of [`connect`]: the reason why the store could not be opened.
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

    /// A store that is not compiled in has no arm of its own in [`connect`], which then treats its
    /// scheme as an unknown one.
    #[tokio::test]
    async fn a_store_that_is_not_compiled_in_is_named_with_its_feature() {
        for (scheme, feature) in KNOWN {
            let error = unavailable(scheme);
            assert!(matches!(error, ConnectError::NotCompiledIn { .. }), "{error:?}");
            let message = error.to_string();
            let named = [scheme, feature].map(|name| message.contains(&format!("`{name}")));
            assert_eq!(named, [true; 2], "{message}");
        }
        let error = connect("mysql://user:hunter2@host/db").await.map(drop).unwrap_err();
        assert!(matches!(error, ConnectError::UnknownScheme { .. }), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}
