//! The stores that the payments servers use.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use test_support::servers::{
    postgres,
    redis::{IN_MEMORY, Server},
};

use crate::payments::server::{change, wait, with_sqlite};

/// The lease of every route of the server.
const LEASE: Duration = Duration::from_secs(5);

/// A store that no other test uses. Clones share it.
#[derive(Clone)]
pub(crate) enum Records {
    /// The SQLite file of the ledger, which is the default.
    Ledger,
    /// A separate SQLite file.
    Sqlite,
    /// A Postgres database, by its URL.
    Postgres(String),
    /// A MariaDB database, by its URL.
    #[cfg(feature = "mysql")]
    MySql(String),
    /// A Redis server.
    Redis(Arc<Server>),
    /// A table of the emulator of DynamoDB, by its URL.
    #[cfg(feature = "dynamodb")]
    DynamoDb(String),
    /// A server that the test stops and starts, by its URL.
    External(String),
}

impl Records {
    /// A new database on the server that the tests share.
    pub(crate) fn postgres() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("payments_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let shared = postgres::shared();
        on_postgres(shared, &format!("CREATE DATABASE {name}"));
        let (server, parameters) = shared.split_once('?').unwrap_or((shared, ""));
        let (server, _) = server.rsplit_once('/').unwrap();
        Self::Postgres(format!("{server}/{name}?{parameters}"))
    }

    /// A new database on the server that the tests share.
    #[cfg(feature = "mysql")]
    pub(crate) fn mysql() -> Self {
        Self::MySql(wait(test_support::servers::mariadb::database()))
    }

    /// A new server.
    pub(crate) fn redis() -> Self {
        Self::Redis(Arc::new(Server::start(IN_MEMORY)))
    }

    /// A new table of the emulator that the tests share.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn dynamodb() -> Self {
        Self::DynamoDb(test_support::servers::dynamodb::Emulator::shared().url())
    }

    /// The value of `--store`.
    pub(crate) fn url(&self, directory: &Path) -> String {
        match self {
            Self::Ledger | Self::Sqlite => format!("sqlite:{}", self.file(directory).display()),
            Self::Postgres(url) | Self::External(url) => url.clone(),
            #[cfg(feature = "mysql")]
            Self::MySql(url) => url.clone(),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(url) => url.clone(),
            Self::Redis(server) => server.url(),
        }
    }

    fn file(&self, directory: &Path) -> PathBuf {
        directory.join(if matches!(self, Self::Ledger) { "payments.db" } else { "records.db" })
    }

    /// Makes all leases expire.
    pub(crate) fn end_leases(&self, directory: &Path) {
        match self {
            Self::Redis(server) => server.advance(LEASE),
            // Only the time of its service ends a lease, which a store knows up to two seconds.
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(_) => std::thread::sleep(LEASE + Duration::from_secs(2)),
            Self::External(_) => panic!("the leases of this store cannot be expired"),
            Self::Ledger | Self::Sqlite | Self::Postgres(_) => {
                assert!(self.expire_leases(directory) > 0, "no record was changed");
            }
            #[cfg(feature = "mysql")]
            Self::MySql(_) => {
                assert!(self.expire_leases(directory) > 0, "no record was changed");
            }
        }
    }

    /// Makes leases expire, and returns how many. Skips records whose completion is about to be
    /// committed.
    pub(crate) fn expire_leases(&self, directory: &Path) -> u64 {
        match self {
            Self::Ledger | Self::Sqlite => change(
                &self.file(directory),
                "UPDATE idempotency_records SET lease_until = 0 \
                    WHERE state = 1",
            ),
            Self::Postgres(url) => on_postgres(
                url,
                "UPDATE idempotency_records SET lease_until = 0 WHERE id IN
                     (SELECT id FROM idempotency_records WHERE state = 1 \
                      FOR NO KEY UPDATE SKIP LOCKED)",
            ),
            #[cfg(feature = "mysql")]
            Self::MySql(url) => on_mysql(
                url,
                // The limit and the order of the join keep the server from reading other records,
                // whose locks it would wait for.
                "UPDATE (SELECT id FROM idempotency_records WHERE state = 1 \
                      LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS free
                     STRAIGHT_JOIN idempotency_records AS r ON r.id = free.id
                     SET r.lease_until = 0",
            ),
            _ => {
                panic!("the leases of this store cannot be expired one by one")
            }
        }
    }

    /// Makes all records in flight expire, and removes them with a store's purge.
    pub(crate) fn purge_in_flight(&self, directory: &Path) {
        let expire =
            "UPDATE idempotency_records SET lease_until = 0, expires_at = 1 WHERE state = 1";
        match self {
            Self::Ledger | Self::Sqlite => change(&self.file(directory), expire),
            Self::Postgres(url) => on_postgres(url, expire),
            #[cfg(feature = "mysql")]
            Self::MySql(url) => on_mysql(url, expire),
            _ => panic!("only SQL stores purge"),
        };
        wait(async {
            let store = idempotent_actix::store::connect(&self.url(directory)).await.unwrap();
            while store.purge(100).await.unwrap() > 0 {}
        });
    }

    /// Runs statements on Postgres.
    pub(crate) fn prepare(&self, statements: &str) {
        let Self::Postgres(url) = self else { panic!("the statements are for Postgres") };
        on_postgres(url, statements);
    }

    /// Whether the file has no writer now.
    pub(crate) fn can_write(&self, directory: &Path) -> bool {
        with_sqlite(&self.file(directory), async |connection| {
            let now = "PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK";
            sqlx::raw_sql(now).execute(connection).await.is_ok()
        })
    }

    /// The result of a query of the store's database: one column of text.
    pub(crate) fn query(&self, directory: &Path, query: &str) -> Vec<String> {
        let query = AssertSqlSafe(query.to_owned());
        match self {
            Self::Ledger | Self::Sqlite => with_sqlite(&self.file(directory), async |connection| {
                sqlx::query_scalar(query).fetch_all(connection).await.unwrap()
            }),
            Self::Postgres(url) => wait(async {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let found = sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                found
            }),
            #[cfg(feature = "mysql")]
            Self::MySql(url) => wait(async {
                use sqlx::SqlSafeStr as _;
                let text = query.into_sql_str().as_str().replace("AS text", "AS char");
                let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
                let found = sqlx::query_scalar(AssertSqlSafe(text));
                let found = found.fetch_all(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                found
            }),
            _ => panic!("this store cannot be queried with SQL"),
        }
    }
}

/// Runs a statement and returns the number of changed rows.
fn on_postgres(url: &str, statement: &str) -> u64 {
    wait(async {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        done.rows_affected()
    })
}

/// The same on MariaDB.
#[cfg(feature = "mysql")]
fn on_mysql(url: &str, statement: &str) -> u64 {
    wait(async {
        let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        done.rows_affected()
    })
}
