//! A new database for each test.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use actix_web::{
    App,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{
    Idempotency,
    store::{PostgresStore, SqliteStore, Store},
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, PgPool, SqlitePool,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use test_support::{Probe, Server, servers::postgres::Postgres, wait_for};
use tokio::runtime::Runtime;

use super::handlers;

/// The runtime of the pools that tests use, which outlive the servers.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});
static POSTGRES: LazyLock<Postgres> = LazyLock::new(Postgres::start);

/// The rows that handlers write. Each references the record that it is committed with, and possibly
/// another row, which is checked at the commit.
const EFFECTS: &str = "CREATE TABLE effects (
    note text NOT NULL PRIMARY KEY,
    record BYTES REFERENCES idempotency_records (id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED,
    depends_on text REFERENCES effects (note) DEFERRABLE INITIALLY DEFERRED
)";

/// A database with a store, and a separate pool of connections to it.
pub(crate) struct Database {
    pub(crate) probe: Probe,
    store: Arc<dyn Store>,
    idempotency: Idempotency,
    pool: Pool,
}

enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("transactions_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Database {
    pub(crate) fn sqlite(probe: Probe) -> Self {
        let file = std::env::temp_dir().join(format!("{}.db", name()));
        RUNTIME.block_on(async {
            let store = SqliteStore::connect(&format!("sqlite:{}", file.display())).await.unwrap();
            store.migrate().await.unwrap();
            // One connection, so that `ROLLBACK` ends what `BEGIN` began.
            let pool = SqlitePoolOptions::new().max_connections(1);
            let options = SqliteConnectOptions::new().filename(&file);
            let pool = pool.connect_with(options).await.unwrap();
            let database = Self::new(probe, Arc::new(store), Pool::Sqlite(pool));
            database.run(&EFFECTS.replace("BYTES", "blob")).await;
            database
        })
    }

    pub(crate) fn postgres(probe: Probe) -> Self {
        Self::postgres_with(probe, "")
    }

    /// A Postgres database whose store has additional URL parameters.
    pub(crate) fn postgres_with(probe: Probe, parameters: &str) -> Self {
        let name = name();
        RUNTIME.block_on(async {
            let administrator = PgPool::connect(&POSTGRES.url("postgres")).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
                .execute(&administrator)
                .await
                .unwrap();
            let url = POSTGRES.url(&name);
            let store = PostgresStore::connect(&format!("{url}{parameters}")).await.unwrap();
            store.migrate().await.unwrap();
            let options: PgConnectOptions = url.parse().unwrap();
            let options = options.application_name("tests").disable_statement_logging();
            let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
            let database = Self::new(probe, Arc::new(store), Pool::Postgres(pool));
            database.run(&EFFECTS.replace("BYTES", "bytea")).await;
            database
        })
    }

    pub(crate) fn idempotency(&self) -> Idempotency {
        self.idempotency.clone()
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.pool, Pool::Postgres(_))
    }

    /// Another store and handle on the same database, as in another process.
    pub(crate) fn other_process(&self) -> Self {
        let Pool::Postgres(pool) = &self.pool else { panic!("a SQLite file has one writer") };
        let url = pool.connect_options().to_url_lossy().to_string();
        let store = RUNTIME.block_on(PostgresStore::connect(&url)).unwrap();
        Self::new(self.probe.clone(), Arc::new(store), Pool::Postgres(pool.clone()))
    }

    fn new(probe: Probe, store: Arc<dyn Store>, pool: Pool) -> Self {
        let idempotency = Idempotency::builder(store.clone()).purge_every(None).build();
        Self { probe, store, idempotency, pool }
    }

    /// Removes the effective time limit on calls to the store.
    pub(crate) fn without_store_timeout(mut self) -> Self {
        let builder = Idempotency::builder(self.store.clone()).purge_every(None);
        self.idempotency = builder.store_timeout(Duration::from_secs(24 * 60 * 60)).build();
        self
    }

    /// Sets the time limit on calls to the store.
    pub(crate) fn with_store_timeout(mut self, limit: Duration) -> Self {
        let builder = Idempotency::builder(self.store.clone()).purge_every(None);
        self.idempotency = builder.store_timeout(limit).build();
        self
    }

    pub(crate) fn serve(&self) -> Server {
        let (idempotency, probe) = (self.idempotency.clone(), self.probe.clone());
        let handlers: fn(&mut ServiceConfig) = match self.pool {
            Pool::Sqlite(_) => handlers::sqlite::all,
            Pool::Postgres(_) => handlers::postgres::all,
        };
        Server::start(move || {
            let app = App::new().app_data(idempotency.clone()).app_data(Data::new(probe.clone()));
            app.configure(handlers)
        })
    }

    async fn run(&self, text: &str) {
        let text = AssertSqlSafe(text.to_owned());
        match &self.pool {
            Pool::Sqlite(pool) => drop(sqlx::raw_sql(text).execute(pool).await.unwrap()),
            Pool::Postgres(pool) => drop(sqlx::raw_sql(text).execute(pool).await.unwrap()),
        }
    }

    /// Runs statements outside of the store.
    pub(crate) fn execute(&self, text: &str) {
        RUNTIME.block_on(self.run(text));
    }

    /// The single number that a query returns.
    pub(crate) fn number(&self, text: &str) -> i64 {
        let text = AssertSqlSafe(text.to_owned());
        RUNTIME.block_on(async {
            match &self.pool {
                Pool::Sqlite(pool) => sqlx::query_scalar(text).fetch_one(pool).await.unwrap(),
                Pool::Postgres(pool) => sqlx::query_scalar(text).fetch_one(pool).await.unwrap(),
            }
        })
    }

    /// The number of committed effects and of completed records.
    pub(crate) fn counts(&self) -> (i64, i64) {
        let completed = "SELECT count(*) FROM idempotency_records WHERE state = 2";
        (self.number("SELECT count(*) FROM effects"), self.number(completed))
    }

    /// Lets every lease expire.
    pub(crate) fn expire_leases(&self) {
        self.execute("UPDATE idempotency_records SET lease_until = 0 WHERE state = 1");
    }

    /// Asserts that no transaction is open once the pending work has ended.
    #[track_caller]
    pub(crate) fn drain_and_assert_no_open_transaction(&self) {
        assert!(wait_for("the end of all work", self.idempotency.drain(Duration::from_secs(5))));
        self.assert_no_open_transaction();
    }

    /// Asserts that no transaction is open, or stays open, while requests are in flight.
    #[track_caller]
    pub(crate) fn assert_no_open_transaction(&self) {
        match &self.pool {
            // This fails while another transaction holds the lock.
            Pool::Sqlite(_) => self.execute("BEGIN IMMEDIATE; ROLLBACK"),
            Pool::Postgres(_) => {
                let open = "SELECT count(*) FROM pg_stat_activity \
                            WHERE datname = current_database() \
                            AND application_name = 'idempotency' AND state LIKE 'idle in%'";
                // The session of a closed connection ends with a delay.
                let began = Instant::now();
                while self.number(open) != 0 {
                    assert!(
                        began.elapsed() < test_support::WAIT_LIMIT,
                        "a transaction is still open"
                    );
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}
