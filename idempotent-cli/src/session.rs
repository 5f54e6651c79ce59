//! The store, opened by its URL, and calls to it with a time limit.

use std::{path::Path, sync::Arc, time::Duration};

use idempotent_core::{
    FingerprintKeys, Runtime, Store, StoreError,
    runtime::{Administrator, RuntimeOptions},
    store::url::{ConnectError, scheme},
};

use crate::{args::ConnectionArguments, failure::Failure};

mod keyring;
mod keys;
mod url;

pub(crate) use self::keys::fingerprint_keys;

/// The store, and how long a call to it may take.
pub(crate) struct Session {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) administrator: Administrator,
    /// The id of the key that seals, if there is a keyring.
    pub(crate) sealing_key: Option<u32>,
    timeout: Duration,
}

/// What a command needs of the store beside the command line.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The keys that sign principals.
    pub(crate) keys: FingerprintKeys,
    /// Whether the store may be created.
    pub(crate) creates: bool,
    /// The number of partitions of a new table.
    pub(crate) partitions: Option<u16>,
}

impl Session {
    pub(crate) async fn open(
        arguments: &ConnectionArguments,
        needs: Needs,
    ) -> Result<Self, Failure> {
        let url = url::of(arguments)?;
        let (sealing_key, keyring) = keyring::of(&arguments.keyring)?.unzip();
        let timeout = arguments.timeout;
        let opened = tokio::time::timeout(timeout, open(&url, arguments, &needs)).await;
        let store = opened.map_err(|_| {
            let message = format!("the store could not be opened within {timeout:?}");
            Failure::Error(message + "; check its address, or raise --timeout")
        })??;
        let mut options = RuntimeOptions::default();
        options.fingerprint_keys = needs.keys;
        options.keyring = keyring.unwrap_or_default();
        options.store_timeout = timeout;
        options.purge_every = None;
        let administrator = Runtime::shared(store.clone(), options).administrator();
        Ok(Self { store, administrator, sealing_key, timeout })
    }

    /// Makes a call with a time limit.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        let called = tokio::time::timeout(self.timeout, Box::pin(call)).await;
        called.map_err(|_| self.timed_out())?.map_err(Failure::from)
    }

    fn timed_out(&self) -> Failure {
        Failure::Error(format!(
            "the store did not respond within {:?}. Whether the call took effect is not known; \
             raise --timeout for a store with many records",
            self.timeout
        ))
    }
}

async fn open(
    url: &str,
    arguments: &ConnectionArguments,
    needs: &Needs,
) -> Result<Arc<dyn Store>, Failure> {
    let scheme = scheme(url).map_err(|error| Failure::Usage(error.to_string()))?;
    match scheme {
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite(url, arguments, needs).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres(url, arguments, needs).await,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => mysql(url, arguments, needs).await,
        #[cfg(feature = "redis")]
        "redis" | "redis+sentinel" | "redis+cluster" => redis(url, arguments, needs).await,
        #[cfg(feature = "redis-tls")]
        "rediss" | "rediss+sentinel" | "rediss+cluster" => redis(url, arguments, needs).await,
        #[cfg(feature = "dynamodb")]
        "dynamodb" => dynamodb(url, arguments, needs).await,
        "memory" => Err(Failure::Usage(
            "the records of `memory:` are in the process of the application, where no other \
             program can read them"
                .into(),
        )),
        scheme => Err(Failure::Usage(ConnectError::unavailable(scheme).to_string())),
    }
}

fn opened<S: Store>(store: Result<S, StoreError>) -> Result<Arc<dyn Store>, Failure> {
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(Failure::error("the store cannot be opened", &error)),
    }
}

/// Fails if an option is set that this store does not have.
fn refuse(store: &str, options: &[(&str, bool)]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) => Err(Failure::Usage(format!("{option} is no option of {store}"))),
        None => Ok(()),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(
    url: &str,
    arguments: &ConnectionArguments,
    needs: &Needs,
) -> Result<Arc<dyn Store>, Failure> {
    let others = [
        ("--schema", arguments.schema.is_some()),
        ("--key-prefix", arguments.key_prefix.is_some()),
        ("--partitions", needs.partitions.is_some()),
    ];
    refuse("SQLite", &others)?;
    let mut options = idempotent_sqlite::SqliteStore::options();
    if let Some(table) = &arguments.table {
        options = options.table(table);
    }
    // A misspelled name must not create a file.
    let url = if needs.creates || url.contains("mode=") {
        url.to_owned()
    } else {
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}mode=rw")
    };
    opened(options.connect(&url).await)
}

#[cfg(feature = "postgres")]
async fn postgres(
    url: &str,
    arguments: &ConnectionArguments,
    needs: &Needs,
) -> Result<Arc<dyn Store>, Failure> {
    refuse("Postgres", &[("--key-prefix", arguments.key_prefix.is_some())])?;
    let mut options = idempotent_postgres::PostgresStore::options();
    if let Some(table) = &arguments.table {
        options = options.table(table);
    }
    if let Some(schema) = &arguments.schema {
        options = options.schema(schema);
    }
    if let Some(partitions) = needs.partitions {
        options = options.partitions(partitions);
    }
    opened(options.connect(url).await)
}

#[cfg(feature = "mysql")]
async fn mysql(
    url: &str,
    arguments: &ConnectionArguments,
    needs: &Needs,
) -> Result<Arc<dyn Store>, Failure> {
    let others = [
        ("--schema", arguments.schema.is_some()),
        ("--key-prefix", arguments.key_prefix.is_some()),
        ("--partitions", needs.partitions.is_some()),
    ];
    refuse("MySQL", &others)?;
    let mut options = idempotent_mysql::MySqlStore::options();
    if let Some(table) = &arguments.table {
        options = options.table(table);
    }
    opened(options.connect(url).await)
}

#[cfg(feature = "redis")]
async fn redis(
    url: &str,
    arguments: &ConnectionArguments,
    needs: &Needs,
) -> Result<Arc<dyn Store>, Failure> {
    let others = [
        ("--table", arguments.table.is_some()),
        ("--schema", arguments.schema.is_some()),
        ("--partitions", needs.partitions.is_some()),
    ];
    refuse("Redis", &others)?;
    let mut options = idempotent_redis::RedisStore::options().response_timeout(arguments.timeout);
    if let Some(prefix) = &arguments.key_prefix {
        options = options.key_prefix(prefix);
    }
    opened(options.connect(url).await)
}

#[cfg(feature = "dynamodb")]
async fn dynamodb(
    url: &str,
    arguments: &ConnectionArguments,
    needs: &Needs,
) -> Result<Arc<dyn Store>, Failure> {
    let others = [
        ("--table", arguments.table.is_some()),
        ("--schema", arguments.schema.is_some()),
        ("--partitions", needs.partitions.is_some()),
    ];
    refuse("DynamoDB, whose URL has the table", &others)?;
    let mut options = idempotent_dynamodb::DynamoDbStore::options().call_timeout(arguments.timeout);
    if let Some(prefix) = &arguments.key_prefix {
        options = options.key_prefix(prefix);
    }
    opened(options.connect(url).await)
}

/// Reads a file whose contents are not shown in errors.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    let contents = std::fs::read_to_string(file);
    contents.map_err(|error| Failure::error(&format!("{} cannot be read", file.display()), &error))
}
