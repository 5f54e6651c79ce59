//! Stores by their URL.

use std::{error::Error, fmt, sync::Arc};

use super::Store;
use crate::error::StoreError;

/// The schemes of the URLs, each with the feature that compiles its store in.
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

/// Opens the store that a URL names: `memory:`; `sqlite:FILE`, also written `sqlite://FILE`; `postgres://USER@HOST/DATABASE`;
/// `redis://…`, `redis+sentinel://…` or `redis+cluster://…`. Call [`migrate`](Store::migrate) on it before the first claim.
///
/// # Errors
/// [`ConnectError`] tells a URL that no store knows from a store that is not compiled in and one that cannot be reached. It shows
/// nothing of the URL but the scheme, since a URL can hold a password.
///
/// # Examples
/// ```
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let store = idempotent_core::store::connect("memory:").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let (scheme, _) = url.split_once(':').ok_or(ConnectError::NoScheme)?;
    match scheme {
        #[cfg(feature = "memory")]
        "memory" if url == "memory:" => Ok(Arc::new(super::memory::MemoryStore::new())),
        #[cfg(feature = "memory")]
        "memory" => Err(ConnectError::NotMemory),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let store = super::sqlite::SqliteStore::connect(url).await;
            store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let store = super::postgres::PostgresStore::connect(url).await;
            store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
        }
        #[cfg(feature = "redis")]
        "redis" | "redis+sentinel" | "redis+cluster" => redis(url).await,
        #[cfg(feature = "redis-tls")]
        "rediss" | "rediss+sentinel" | "rediss+cluster" => redis(url).await,
        _ => Err(not_here(scheme)),
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let store = super::redis::RedisStore::connect(url).await;
    store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
}

fn not_here(scheme: &str) -> ConnectError {
    match KNOWN.into_iter().find(|(known, _)| *known == scheme) {
        Some((scheme, feature)) => ConnectError::NotCompiledIn { scheme, feature },
        None => ConnectError::UnknownScheme { scheme: scheme.to_owned() },
    }
}

/// Why a URL did not become a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text has no `:`, so it is no URL.
    NoScheme,
    /// No store has this scheme.
    UnknownScheme {
        /// What stands before the first `:`.
        scheme: String,
    },
    /// The store exists, but this program was built without it.
    NotCompiledIn {
        /// The URL's scheme.
        scheme: &'static str,
        /// The Cargo feature to enable.
        feature: &'static str,
    },
    /// Something stands after `memory:`.
    NotMemory,
    /// The store could not be opened.
    Store(StoreError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScheme => f.write_str("a store's URL starts with a scheme, such as `memory:` or `sqlite:FILE`"),
            Self::UnknownScheme { scheme } => {
                let known = KNOWN.map(|(scheme, _)| format!("`{scheme}:`")).join(", ");
                write!(f, "no store has the scheme `{scheme}:`; known are {known}")
            }
            Self::NotCompiledIn { scheme, feature } => {
                write!(f, "`{scheme}:` needs the Cargo feature `{feature}`, which this program was built without")
            }
            Self::NotMemory => f.write_str("the memory store has no name: its URL is `memory:`"),
            Self::Store(_) => f.write_str("the store cannot be opened"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::NoScheme | Self::UnknownScheme { .. } | Self::NotCompiledIn { .. } | Self::NotMemory => None,
        }
    }
}
