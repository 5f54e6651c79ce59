//! Stores with the statements or scripts of a variant.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId,
    conformance::{Action, TestedStore, history},
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    store::{Store, TransactionClaim},
};
#[cfg(feature = "mysql")]
use idempotent_mysql::{
    MySqlStore,
    internals::{alter_mysql, batched_mysql},
};
use idempotent_postgres::{
    PostgresStore,
    internals::{alter_postgres, batched_postgres, postgres_batches},
};
use idempotent_redis::{
    RedisStore,
    internals::{alter_redis, with_options},
};
use idempotent_sqlite::{
    SqliteStore,
    internals::{alter_sqlite, batched_sqlite},
};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use super::Variant;
use crate::{
    claims_in_transactions::InTransaction,
    effects::Effects,
    fixtures::{Fixture, Redis, unique},
    hammer::request,
};
use test_support::{
    servers::{
        postgres::database,
        redis::{IN_MEMORY, Server},
    },
    subjects::{self, sqlite::File},
};

mod detectors;
mod shifted;
mod takeovers;

pub(super) use self::detectors::reads_from_a_replica;
use self::shifted::{Rows, ShiftedStore};

pub(super) enum Backend {
    Sqlite,
    /// With all claims and completions in batches, or alone.
    Postgres {
        url: String,
        pool: PgPool,
        batched: bool,
    },
    /// As in Postgres.
    #[cfg(feature = "mysql")]
    MySql {
        url: String,
        pool: sqlx::MySqlPool,
        batched: bool,
    },
    Redis(Redis),
}

impl Backend {
    pub(super) async fn postgres() -> Self {
        let url = database().await;
        // Concurrent sessions that create the same table fail, even with `IF NOT EXISTS`.
        drop(Effects::postgres(&url).await);
        Self::Postgres { pool: PgPool::connect(&url).await.unwrap(), url, batched: false }
    }

    pub(super) async fn postgres_in_batches() -> Self {
        let mut backend = Self::postgres().await;
        if let Self::Postgres { batched, .. } = &mut backend {
            *batched = true;
        }
        backend
    }

    #[cfg(feature = "mysql")]
    pub(super) async fn mysql(batched: bool) -> Self {
        let url = test_support::servers::mariadb::database().await;
        drop(Effects::mysql(&url).await);
        Self::MySql { pool: sqlx::MySqlPool::connect(&url).await.unwrap(), url, batched }
    }

    /// The folder of its statements or scripts.
    pub(super) fn folder(&self) -> &'static str {
        match self {
            Self::Sqlite => "stores/sqlite/src/sql",
            Self::Postgres { .. } => "stores/postgres/src/sql",
            #[cfg(feature = "mysql")]
            Self::MySql { .. } => "stores/mysql/src/sql",
            Self::Redis(_) => "stores/redis/src/lua",
        }
    }

    /// Whether an expired key starts over in a statement of its own.
    pub(super) fn starts_over(&self) -> bool {
        !matches!(self, Self::Sqlite | Self::Redis(_))
    }

    /// Two stores of a variant.
    pub(super) async fn fixture(&self, variant: Variant) -> Fixture {
        match self {
            Self::Sqlite => {
                let file = File::new();
                let stores =
                    [sqlite(&file, variant).await, batched_sqlite(sqlite(&file, variant).await)];
                stores[0].migrate().await.unwrap();
                let effects = Effects::sqlite(&file.url()).await;
                Fixture::new(stores, file).with(effects)
            }
            Self::Postgres { url, batched, .. } => {
                let (table, open) = (unique(), postgres);
                let stores = [
                    open(url, &table, variant, *batched).await,
                    open(url, &table, variant, *batched).await,
                ];
                Store::migrate(&stores[0]).await.unwrap();
                Fixture::new(stores, ()).with(Effects::postgres(url).await)
            }
            #[cfg(feature = "mysql")]
            Self::MySql { url, batched, .. } => {
                let (table, open) = (unique(), mysql);
                let stores = [
                    open(url, &table, variant, *batched).await,
                    open(url, &table, variant, *batched).await,
                ];
                Store::migrate(&stores[0]).await.unwrap();
                Fixture::new(stores, ()).with(Effects::mysql(url).await)
            }
            Self::Redis(server) => {
                let prefix = unique();
                let open = || async { redis_store(server.open(&prefix).await, variant) };
                Fixture::new([open().await, open().await], ())
            }
        }
    }

    /// A store of a variant, whose time the suite can move.
    pub(super) async fn subject(
        &self,
        variant: Variant,
        in_transactions: bool,
    ) -> Arc<dyn TestedStore> {
        let subject: Arc<dyn TestedStore> = match self {
            Self::Sqlite => {
                let file = File::new();
                let store = sqlite(&file, variant).await;
                let pool = SqlitePool::connect(&file.url()).await.unwrap();
                let rows = Rows::Sqlite { pool, _file: file };
                Arc::new(ShiftedStore { store: boxed(store, in_transactions, None), rows })
            }
            Self::Postgres { url, pool, batched } => {
                let table = unique();
                let store = postgres(url, &table, variant, *batched).await;
                Arc::new(ShiftedStore {
                    store: boxed(store, in_transactions, Some(table.clone())),
                    rows: Rows::Postgres { pool: pool.clone(), table },
                })
            }
            #[cfg(feature = "mysql")]
            Self::MySql { url, pool, batched } => {
                let table = unique();
                let store = mysql(url, &table, variant, *batched).await;
                Arc::new(ShiftedStore {
                    store: boxed(store, in_transactions, None),
                    rows: Rows::MySql { pool: pool.clone(), table },
                })
            }
            Self::Redis(server) => {
                let raw =
                    ::redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
                let prefix = unique();
                let store = redis_store(server.open(&prefix).await, variant);
                Arc::new(subjects::redis::ShiftedRedis::new(store, prefix, Box::new(raw)))
            }
        };
        subject.store().migrate().await.unwrap();
        subject
    }
}

fn boxed(store: impl Store, in_transactions: bool, table: Option<String>) -> Box<dyn Store> {
    if in_transactions { Box::new(InTransaction { store, table }) } else { Box::new(store) }
}

pub(super) async fn sqlite(file: &File, variant: Variant) -> SqliteStore {
    alter_sqlite(file.open().await, |name, text| variant.alter(&format!("{name}.sql"), text))
}

pub(super) async fn postgres(
    url: &str,
    table: &str,
    variant: Variant,
    batched: bool,
) -> PostgresStore {
    let store = PostgresStore::options().table(table).group_commit(batched);
    let store = store.connect(url).await.unwrap();
    let store = if batched { batched_postgres(store) } else { store };
    alter_postgres(store, |name, text| variant.alter(&format!("{name}.sql"), text))
}

#[cfg(feature = "mysql")]
pub(super) async fn mysql(url: &str, table: &str, variant: Variant, batched: bool) -> MySqlStore {
    let store = MySqlStore::options().table(table).group_commit(batched);
    let store = store.connect(url).await.unwrap();
    let store = if batched { batched_mysql(store) } else { store };
    alter_mysql(store, |name, text| variant.alter(&format!("{name}.sql"), text))
}

pub(super) fn redis_store(store: RedisStore, variant: Variant) -> RedisStore {
    let files = super::files("stores/redis/src/lua");
    let altered = files.iter().map(|file| {
        let text = super::read("stores/redis/src/lua", file);
        let altered = variant.alter(file, &text);
        (text, altered)
    });
    alter_redis(store, &altered.collect::<Vec<_>>())
}
