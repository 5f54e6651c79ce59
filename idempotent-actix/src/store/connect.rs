//! Opening a store by its URL.

use std::sync::Arc;

pub use idempotent_core::store::url::ConnectError;
use idempotent_core::{Store, store::url::scheme};

/// Opens the store that a URL names, so that a deployment can choose the store:
///
/// * `memory:`
/// * `sqlite:FILE` or `sqlite://FILE`
/// * `postgres://USER@HOST/DATABASE` or `postgresql://…`
/// * `mysql://USER@HOST/DATABASE` or `mariadb://…`
/// * `redis://…`, `redis+sentinel://…` or `redis+cluster://…`; with TLS `rediss` instead of `redis`
/// * `dynamodb://REGION/TABLE`
///
/// Each store needs the Cargo feature of its name; TLS for Redis needs `redis-tls`.
/// `SqliteStore::connect`, `PostgresStore::connect`, `MySqlStore::connect`, `RedisStore::connect`
/// and `DynamoDbStore::connect` document the parameters of their URLs.
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
    match scheme(url)? {
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
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            let store = idempotent_mysql::MySqlStore::connect(url).await;
            store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
        }
        #[cfg(feature = "redis")]
        "redis" | "redis+sentinel" | "redis+cluster" => redis(url).await,
        #[cfg(feature = "redis-tls")]
        "rediss" | "rediss+sentinel" | "rediss+cluster" => redis(url).await,
        #[cfg(feature = "dynamodb")]
        "dynamodb" => {
            let store = idempotent_dynamodb::DynamoDbStore::connect(url).await;
            store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
        }
        scheme => Err(ConnectError::unavailable(scheme)),
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let store = idempotent_redis::RedisStore::connect(url).await;
    store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(ConnectError::Store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_is_named_and_nothing_else_of_the_url() {
        let error = connect("oracle://user:hunter2@host/db").await.map(drop).unwrap_err();
        assert!(matches!(error, ConnectError::UnknownScheme { .. }), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}
