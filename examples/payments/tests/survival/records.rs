//! Where the servers of a test keep their records.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tests::servers::{
    postgres,
    redis::{FORGETFUL, Server},
};

use crate::payments::{change, wait};

/// The lease of every route of the server.
const LEASE: Duration = Duration::from_secs(5);

/// A store that no other test uses. Clones are the same one.
#[derive(Clone)]
pub(crate) enum Records {
    /// The ledger's file, as it is by default.
    Ledger,
    /// An SQLite file beside the ledger.
    Sqlite,
    /// A database, by its URL.
    Postgres(String),
    /// A server.
    Redis(Arc<Server>),
    /// A server that the test stops and starts, by its URL.
    Outside(String),
}

impl Records {
    /// A new database on the server that the tests share.
    pub(crate) fn postgres() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("payments_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let shared = postgres::shared();
        on_postgres(shared, &format!("CREATE DATABASE {name}"));
        let (server, parameters) = shared.split_once('?').unwrap_or((shared, ""));
        let (server, _) = server.rsplit_once('/').unwrap();
        Self::Postgres(format!("{server}/{name}?{parameters}"))
    }

    /// A new server.
    pub(crate) fn redis() -> Self {
        Self::Redis(Arc::new(Server::start(FORGETFUL)))
    }

    /// What `--store` says.
    pub(crate) fn url(&self, directory: &Path) -> String {
        match self {
            Self::Ledger | Self::Sqlite => format!("sqlite:{}", self.file(directory).display()),
            Self::Postgres(url) | Self::Outside(url) => url.clone(),
            Self::Redis(server) => server.url(),
        }
    }

    fn file(&self, directory: &Path) -> PathBuf {
        directory.join(if matches!(self, Self::Ledger) { "payments.db" } else { "records.db" })
    }

    /// Moves the time of all leases back behind the present.
    pub(crate) fn end_leases(&self, directory: &Path) {
        let statement = "UPDATE idempotency_records SET lease_until = 0 WHERE state = 1";
        match self {
            Self::Ledger | Self::Sqlite => change(&self.file(directory), statement),
            Self::Postgres(url) => assert!(on_postgres(url, statement) > 0, "nothing was there to change"),
            Self::Redis(server) => server.pass(LEASE),
            Self::Outside(_) => panic!("time does not move there"),
        }
    }
}

/// Runs a statement, and tells how many rows it has changed.
fn on_postgres(url: &str, statement: &str) -> u64 {
    wait(async {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        done.rows_affected()
    })
}
