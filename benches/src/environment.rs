//! The stores under test, which are emptied before each run: private servers, a file, or memory.

use std::{
    cell::OnceCell,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use idempotent_actix::store::{PostgresStore, SqliteStore};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};

use test_support::servers;

use crate::{cpu, load::Watched, server::Server};

#[cfg(feature = "mysql")]
mod mysql;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    Memory,
    Redis,
    Postgres,
    Sqlite,
    #[cfg(feature = "mysql")]
    #[value(name = "mysql")]
    MySql,
}

impl StoreKind {
    /// The given stores, or all stores if none are given.
    pub(crate) fn select(stores: &[Self]) -> Vec<Self> {
        if stores.is_empty() { Self::value_variants().to_vec() } else { stores.to_vec() }
    }

    /// The name of the store, which is the first part of the names of its rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            #[cfg(feature = "mysql")]
            Self::MySql => "mysql",
        }
    }
}

/// The log is flushed every second, as Redis' documentation recommends, and is not rewritten during
/// a run.
const REDIS: &[&str] = &[
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
    "--auto-aof-rewrite-percentage",
    "0",
];

const EFFECTS: &str =
    "CREATE TABLE IF NOT EXISTS effects (key {bytes} NOT NULL, response {bytes} NOT NULL)";

/// The servers and files of this process.
pub(crate) struct Environment {
    runtime: tokio::runtime::Runtime,
    directory: PathBuf,
    postgres: OnceCell<Postgres>,
    redis: OnceCell<servers::redis::Server>,
    #[cfg(feature = "mysql")]
    mysql: OnceCell<mysql::MariaDb>,
}

/// A private Postgres server.
pub(crate) struct Postgres {
    pub(crate) server: servers::postgres::Postgres,
    pub(crate) pool: PgPool,
}

impl Environment {
    pub(crate) fn new() -> Self {
        let directory =
            std::env::temp_dir().join(format!("idempotent-benches-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            runtime,
            directory,
            postgres: OnceCell::new(),
            redis: OnceCell::new(),
            #[cfg(feature = "mysql")]
            mysql: OnceCell::new(),
        }
    }

    /// Runs a future to completion.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Empties a store and returns its URL.
    pub(crate) fn clean(&self, store: StoreKind) -> String {
        match store {
            StoreKind::Memory => "memory:".into(),
            StoreKind::Sqlite => self.clean_sqlite(),
            StoreKind::Postgres => self.clean_postgres(),
            StoreKind::Redis => self.clean_redis(),
            #[cfg(feature = "mysql")]
            StoreKind::MySql => self.mysql().clean(self),
        }
    }

    /// The process of the store's server, if the store has one.
    pub(crate) fn process(&self, store: StoreKind) -> Option<u32> {
        match store {
            StoreKind::Memory | StoreKind::Sqlite => None,
            StoreKind::Postgres => {
                let query =
                    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&self.postgres().pool);
                let backend: i32 = self.wait(query).unwrap();
                cpu::parent(backend.unsigned_abs())
            }
            StoreKind::Redis => self.redis().info("process_id")?.parse().ok(),
            #[cfg(feature = "mysql")]
            StoreKind::MySql => Some(self.mysql().server.process()),
        }
    }

    /// The processes of a server under test and of its store, to measure their processor time.
    pub(crate) fn watched(&self, store: StoreKind, server: &Server) -> Watched {
        let mut watched = vec![("server".to_owned(), server.process())];
        watched.extend(self.process(store).map(|process| ("store".to_owned(), process)));
        Watched(watched)
    }

    /// The SQLite file.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("records.db")
    }

    fn clean_sqlite(&self) -> String {
        let file = self.file();
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{suffix}", file.display()));
        }
        let url = format!("sqlite:{}", file.display());
        self.wait(async {
            for table in ["idempotency_records", "floor"] {
                let store = SqliteStore::options().table(table).connect(&url).await.unwrap();
                store.migrate().await.unwrap();
            }
            let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(EFFECTS.replace("{bytes}", "BLOB")))
                .execute(&pool)
                .await
                .unwrap();
            pool.close().await;
        });
        url
    }

    /// The Postgres server, started at its first use.
    pub(crate) fn postgres(&self) -> &Postgres {
        self.postgres.get_or_init(|| {
            let server = servers::postgres::Postgres::start();
            let url = server.url("postgres");
            let pool = self.wait(async {
                let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
                for table in ["idempotency_records", "floor"] {
                    let store = PostgresStore::options().table(table).connect(&url).await.unwrap();
                    store.migrate().await.unwrap();
                }
                let effects = EFFECTS.replace("{bytes}", "bytea");
                let prepare = format!("CREATE EXTENSION pg_stat_statements; {effects}");
                sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&pool).await.unwrap();
                pool
            });
            Postgres { server, pool }
        })
    }

    fn clean_postgres(&self) -> String {
        let postgres = self.postgres();
        postgres.execute(self, "TRUNCATE idempotency_records, floor, effects; CHECKPOINT");
        postgres.server.url("postgres")
    }

    /// The MariaDB server, started at its first use.
    #[cfg(feature = "mysql")]
    pub(crate) fn mysql(&self) -> &mysql::MariaDb {
        self.mysql.get_or_init(|| mysql::MariaDb::start(self))
    }

    /// The Redis server, started at its first use.
    pub(crate) fn redis(&self) -> &servers::redis::Server {
        self.redis.get_or_init(|| servers::redis::Server::start(REDIS))
    }

    fn clean_redis(&self) -> String {
        let redis = self.redis();
        redis.command::<()>("FLUSHALL SYNC");
        let _: String = redis.command("BGREWRITEAOF");
        let limit = Instant::now() + Duration::from_secs(20);
        while redis.info("aof_rewrite_in_progress").is_none_or(|running| running != "0") {
            assert!(Instant::now() < limit, "Redis did not finish rewriting its log within 20 s");
            thread::sleep(Duration::from_millis(10));
        }
        redis.url()
    }
}

impl Postgres {
    /// Runs each statement separately, because some of them cannot run in a transaction.
    pub(crate) fn execute(&self, environment: &Environment, statements: &str) {
        for statement in statements.split("; ") {
            environment
                .wait(sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.pool))
                .unwrap();
        }
    }

    /// Runs a query that returns one number.
    pub(crate) fn number(&self, environment: &Environment, query: &str) -> i64 {
        environment
            .wait(sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&self.pool))
            .unwrap()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
