//! The SQLite files of the ledger and of the bank.

use std::{path::Path, time::Duration};

use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

/// Opens a file, and creates its tables. Its commits survive a crash of the process or the machine.
pub(crate) async fn open(file: &Path, schema: &'static str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(10));
    let pool = connect(options).await?;
    sqlx::raw_sql(schema).execute(&pool).await?;
    Ok(pool)
}

/// Opens the file. Retries, because several servers may open a new file concurrently, and SQLite
/// does not wait for the lock that the switch to WAL needs.
async fn connect(options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    for _ in 0..100 {
        match SqlitePoolOptions::new().max_connections(4).connect_with(options.clone()).await {
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| code == "5") => {
                actix_web::rt::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return opened,
        }
    }
    SqlitePoolOptions::new().max_connections(4).connect_with(options).await
}
