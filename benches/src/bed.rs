//! The stores under test: private servers, a file, or nothing, each emptied before a run.

use std::{
    cell::OnceCell,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use idempotent_actix::store::{PostgresStore, SqliteStore, Store as _};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};

use crate::{cpu, databases};

/// Where records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Memory,
    Sqlite,
    Postgres,
    Redis,
}

impl Kept {
    /// Its name, as in the names of rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }
}

/// Durable once a second, as Redis' own documentation recommends; the file is not rewritten while something is measured.
const REDIS: &[&str] =
    &["--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"];

const EFFECTS: &str = "CREATE TABLE IF NOT EXISTS effects (key {bytes} NOT NULL, answer {bytes} NOT NULL)";

/// Everything that this process has started or written.
pub(crate) struct Bed {
    runtime: tokio::runtime::Runtime,
    directory: PathBuf,
    postgres: OnceCell<Postgres>,
    redis: OnceCell<databases::redis::Server>,
}

/// A private Postgres server.
pub(crate) struct Postgres {
    pub(crate) server: databases::postgres::Postgres,
    pub(crate) pool: PgPool,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("idempotent-benches-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, directory, postgres: OnceCell::new(), redis: OnceCell::new() }
    }

    /// Waits for a future.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Empties a store and gives its URL.
    pub(crate) fn clean(&self, kept: Kept) -> String {
        match kept {
            Kept::Memory => "memory:".into(),
            Kept::Sqlite => self.clean_sqlite(),
            Kept::Postgres => self.clean_postgres(),
            Kept::Redis => self.clean_redis(),
        }
    }

    /// The process of a store's own server.
    pub(crate) fn process(&self, kept: Kept) -> Option<u32> {
        match kept {
            Kept::Memory | Kept::Sqlite => None,
            Kept::Postgres => {
                let asked = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&self.postgres().pool);
                let backend: i32 = self.wait(asked).unwrap();
                cpu::parent(backend.unsigned_abs())
            }
            Kept::Redis => self.redis().info("process_id")?.parse().ok(),
        }
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
            let store = SqliteStore::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            store.table("floor").unwrap().migrate().await.unwrap();
            let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(EFFECTS.replace("{bytes}", "BLOB"))).execute(&pool).await.unwrap();
            pool.close().await;
        });
        url
    }

    /// The Postgres server, started when it is first asked for.
    pub(crate) fn postgres(&self) -> &Postgres {
        self.postgres.get_or_init(|| {
            let server = databases::postgres::Postgres::start();
            let url = server.url("postgres");
            let pool = self.wait(async {
                let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
                let store = PostgresStore::connect(&url).await.unwrap();
                store.migrate().await.unwrap();
                store.table("floor").unwrap().migrate().await.unwrap();
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

    /// The Redis server, started when it is first asked for.
    pub(crate) fn redis(&self) -> &databases::redis::Server {
        self.redis.get_or_init(|| databases::redis::Server::start(REDIS))
    }

    fn clean_redis(&self) -> String {
        let redis = self.redis();
        redis.ask::<()>("FLUSHALL SYNC");
        let _: String = redis.ask("BGREWRITEAOF");
        let limit = Instant::now() + Duration::from_secs(20);
        while redis.info("aof_rewrite_in_progress").is_none_or(|running| running != "0") {
            assert!(Instant::now() < limit, "Redis does not end the rewriting of its log");
            thread::sleep(Duration::from_millis(10));
        }
        redis.url()
    }
}

impl Postgres {
    /// Runs statements, each by itself: some cannot run within a transaction.
    pub(crate) fn execute(&self, bed: &Bed, statements: &str) {
        for statement in statements.split("; ") {
            bed.wait(sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.pool)).unwrap();
        }
    }

    /// Asks for one number.
    pub(crate) fn number(&self, bed: &Bed, question: &str) -> i64 {
        bed.wait(sqlx::query_scalar(AssertSqlSafe(question.to_owned())).fetch_one(&self.pool)).unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
