//! Each result code that a real database can be made to return.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use super::*;

/// A database in its own directory, which is removed when this is dropped.
struct Database(PathBuf);

impl Database {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("idempotent-codes-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("records.db")
    }

    async fn connect(&self, mode: SqliteJournalMode) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path()).create_if_missing(true);
        options.journal_mode(mode).busy_timeout(Duration::ZERO).connect().await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn execute(
    connection: &mut SqliteConnection,
    statements: impl Into<String>,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statements.into())).execute(connection).await.map(drop)
}

/// A table `t` with a row.
const CREATE: &str =
    "CREATE TABLE t (id INTEGER PRIMARY KEY, n CHECK (n > 0)); INSERT INTO t VALUES (1, 1);";

/// The error of the last of these statements.
async fn error_of(before: &str, fails: &str) -> sqlx::Error {
    let database = Database::new(&fails.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
    let mut connection = database.connect(SqliteJournalMode::Wal).await;
    execute(&mut connection, format!("{CREATE}{before}")).await.unwrap();
    execute(&mut connection, fails).await.unwrap_err()
}

fn assert_class(error: &sqlx::Error, expected_code: i32, expected: [&dyn std::fmt::Debug; 3]) {
    assert_eq!(code(error), Some(expected_code), "{error}");
    let ErrorClass { effect, cause, connection } = error_class(error);
    assert_eq!(
        format!("{:?}", [&effect as &dyn std::fmt::Debug, &cause, &connection]),
        format!("{expected:?}"),
        "{error}"
    );
}

#[tokio::test]
async fn each_error_of_a_statement_has_its_class() {
    for (before, fails, code, cause, connection) in [
        ("BEGIN", "BEGIN", 1, Permanent, Unusable),
        ("", "SELECT * FROM missing", 1, Permanent, Unusable),
        ("PRAGMA query_only = ON", "DELETE FROM t", 8, Permanent, Unusable),
        (
            "PRAGMA max_page_count = 3",
            "INSERT INTO t VALUES (2, zeroblob(100000))",
            13,
            Temporary,
            Unusable,
        ),
        ("", "SELECT zeroblob(2000000000)", 18, Permanent, Good),
        ("", "INSERT INTO t VALUES (2, -1)", 275, Permanent, Good),
        ("", "INSERT INTO t VALUES (1, 1)", 1555, Permanent, Good),
        ("", "INSERT INTO t VALUES ('x', 1)", 20, Permanent, Good),
    ] {
        assert_class(&error_of(before, fails).await, code, [&NoEffect, &cause, &connection]);
    }
}

#[tokio::test]
async fn a_lock_of_another_connection_leaves_the_connection_good() {
    let database = Database::new("busy");
    let (mut one, mut other) = (
        database.connect(SqliteJournalMode::Wal).await,
        database.connect(SqliteJournalMode::Wal).await,
    );
    execute(&mut one, format!("{CREATE}BEGIN IMMEDIATE")).await.unwrap();
    let error = execute(&mut other, "DELETE FROM t").await.unwrap_err();
    assert_class(&error, 5, [&NoEffect, &Temporary, &Good]);
    execute(&mut one, "COMMIT").await.unwrap();
    execute(&mut other, "DELETE FROM t").await.unwrap();
}

#[tokio::test]
async fn a_connection_with_a_stale_snapshot_is_unusable() {
    let database = Database::new("snapshot");
    let (mut one, mut other) = (
        database.connect(SqliteJournalMode::Wal).await,
        database.connect(SqliteJournalMode::Wal).await,
    );
    execute(&mut one, format!("{CREATE}BEGIN; SELECT * FROM t")).await.unwrap();
    execute(&mut other, "UPDATE t SET n = 2").await.unwrap();
    let error = execute(&mut one, "UPDATE t SET n = 3").await.unwrap_err();
    assert!(is_busy(&error));
    assert_class(&error, 517, [&NoEffect, &Temporary, &Unusable]);
}

#[tokio::test]
async fn an_interrupted_statement_is_temporary() {
    let database = Database::new("interrupt");
    let mut connection = database.connect(SqliteJournalMode::Wal).await;
    connection.lock_handle().await.unwrap().set_progress_handler(1, || false);
    let error = execute(&mut connection, CREATE).await.unwrap_err();
    assert_class(&error, 9, [&NoEffect, &Temporary, &Unusable]);
}

/// SQLite notices it by itself only without a write-ahead log.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_moved_is_temporary() {
    let database = Database::new("moved");
    let mut connection = database.connect(SqliteJournalMode::Delete).await;
    execute(&mut connection, CREATE).await.unwrap();
    std::fs::rename(database.path(), database.0.join("moved.db")).unwrap();
    let error = execute(&mut connection, "DELETE FROM t").await.unwrap_err();
    assert_class(&error, 1032, [&NoEffect, &Temporary, &Unusable]);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_or_is_no_database_has_its_class() {
    let database = Database::new("files");
    let missing = SqliteConnectOptions::new().filename(database.0.join("missing/records.db"));
    let error = missing.connect().await.unwrap_err();
    assert_class(&error, 14, [&NoEffect, &Temporary, &Unusable]);

    std::fs::write(database.path(), "not a database".repeat(1_000)).unwrap();
    let options = SqliteConnectOptions::new().filename(database.path());
    let mut connection = options.connect().await.unwrap();
    let error = execute(&mut connection, "SELECT * FROM sqlite_schema").await.unwrap_err();
    assert_class(&error, 26, [&NoEffect, &Permanent, &Unusable]);
}

#[tokio::test]
async fn a_damaged_file_is_permanent() {
    let database = Database::new("corrupt");
    let mut connection = database.connect(SqliteJournalMode::Delete).await;
    execute(&mut connection, CREATE).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let mut bytes = std::fs::read(database.path()).unwrap();
    bytes[4096..].fill(0xff);
    std::fs::write(database.path(), bytes).unwrap();
    let mut connection = database.connect(SqliteJournalMode::Delete).await;
    let error = execute(&mut connection, "SELECT * FROM t").await.unwrap_err();
    assert_class(&error, 11, [&NoEffect, &Permanent, &Unusable]);
}
