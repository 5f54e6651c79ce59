//! The connections of a store, verified before each use.
//!
//! An application can leave anything on a connection of a pool that it shares: an open transaction,
//! in which the store's writes would be neither visible to others nor durable, or a setting under
//! which they could be lost.

use std::{sync::Arc, time::Duration};

use sqlx::{Row as _, SqliteConnection};

use crate::{
    connect::database_file::DatabaseFile,
    error::{is_transient, is_unusable, unsafe_setting},
};
use idempotent_sql::{ConnectionPool, PooledConnection};

/// How long SQLite waits for a lock that another connection holds before the call fails as busy.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(50);
/// Fails in an open transaction, and reads the settings that make a commit durable. It takes no
/// lock and calls no hook.
const VERIFY: &str = "BEGIN; COMMIT; SELECT synchronous, journal_mode \
    FROM main.pragma_synchronous, main.pragma_journal_mode";

/// Attached to a connection that was opened while the path led to the file of the database.
struct Verified;

/// What a connection is used for.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The connections to one file.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) writer: ConnectionPool<SqliteConnection>,
    pub(crate) readers: ConnectionPool<SqliteConnection>,
    pub(crate) file: Arc<DatabaseFile>,
}

impl Connections {
    /// Returns a connection, after verifying the file of the database. For a read on one of the
    /// store's own connections that was verified before, this is not done each time.
    pub(crate) async fn get(
        &self,
        access: Access,
    ) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
        if matches!(access, Access::Read) && self.readers.is_own() {
            return self.own_reader().await;
        }
        self.file.verify()?;
        self.ready(self.writer.get().await?).await
    }

    async fn own_reader(&self) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
        self.file.verify_sometimes()?;
        let mut connection = match self.readers.get().await {
            Ok(connection) => connection,
            // The path may lead to no database any more.
            Err(error) => return Err(self.file.verify().err().unwrap_or(error)),
        };
        if connection.attachment::<Verified>().is_none() {
            if let Err(changed) = self.file.verify() {
                connection.close();
                return Err(changed);
            }
            connection.attach(Arc::new(Verified));
        }
        Ok(connection)
    }

    /// Verifies the file and a connection that [`get`](Self::get) has not returned.
    pub(crate) async fn ready_to_write(
        &self,
        connection: PooledConnection<SqliteConnection>,
    ) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
        if let Err(changed) = self.file.verify() {
            connection.give_back();
            return Err(changed);
        }
        self.ready(connection).await
    }

    /// Returns this connection if it is the store's own, and otherwise one that is
    /// [ready](first_ready).
    async fn ready(
        &self,
        connection: PooledConnection<SqliteConnection>,
    ) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
        if self.writer.is_own() {
            return Ok(connection);
        }
        // Boxed: keeps the futures of calls on the store's own connections small.
        Box::pin(first_ready(&self.writer, connection)).await
    }
}

/// Returns the first connection, from this one on, that has no open transaction and safe settings.
/// Closes the others, so that what was left on them does not last.
pub(crate) async fn first_ready(
    connections: &ConnectionPool<SqliteConnection>,
    mut connection: PooledConnection<SqliteConnection>,
) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
    // If every new connection is unusable, a hook or an option of the application is the cause.
    let mut replacements = connections.max_size();
    loop {
        let Err(error) = verify(&mut connection).await else { return Ok(connection) };
        if replacements == 0 || is_transient(&error) {
            return return_connection(connection, Err(error));
        }
        replacements -= 1;
        tracing::warn!(
            %error,
            "closing a connection of the application's pool: it has an open transaction, or a \
             setting under which records could be lost"
        );
        connection.close();
        connection = connections.get().await?;
    }
}

/// Returns a connection to its pool after its statement has ended.
pub(crate) fn return_connection<T>(
    connection: PooledConnection<SqliteConnection>,
    ended: Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    match &ended {
        Err(error) if is_unusable(error) => connection.close(),
        Ok(_) | Err(_) => connection.give_back(),
    }
    ended
}

/// Verifies that a connection has no open transaction and safe settings.
pub(crate) async fn verify(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let row = sqlx::query(VERIFY).fetch_one(connection).await?;
    let (synchronous, journal): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    if !journal.eq_ignore_ascii_case("wal") {
        Err(unsafe_setting("journal_mode", journal, "wal"))
    } else if !matches!(synchronous, 2 | 3) {
        Err(unsafe_setting("synchronous", synchronous.to_string(), "2 (full) or 3 (extra)"))
    } else {
        Ok(())
    }
}
