//! Beginning a transaction for a handler.

use std::{pin::pin, sync::Arc};

use sqlx::{SqlStr, SqliteConnection};
use tokio::time::timeout;

use crate::{
    connect::connections::{Access, BUSY_TIMEOUT},
    engine::{
        Engine,
        write_lock::{WaitLimit, WriteLockObserver},
    },
    transaction::guarded::GuardedTransaction,
};
use idempotent_sql::PooledConnection;

/// Begins a transaction with these statements; returns `None` if a single transaction holds the
/// lock or the write connection for longer than `wait_limit`.
pub(crate) async fn begin(
    engine: &Engine,
    statements: &SqlStr,
    wait_limit: Option<WaitLimit>,
) -> Result<Option<GuardedTransaction>, sqlx::Error> {
    let connection = match wait_limit {
        Some(wait_limit) => connection_for(engine, wait_limit).await?,
        None => Some(engine.connections.get(Access::Write).await?),
    };
    let Some(connection) = connection else { return Ok(None) };
    // Each connection of a shared pool needs its own observation of the lock.
    let lock = if engine.connections.writer.is_own() {
        engine.lock.clone()
    } else {
        Arc::new(WriteLockObserver::default())
    };
    GuardedTransaction::begin(connection, lock, statements, wait_limit).await
}

/// Returns the write connection; `None` if a single transaction holds it for longer than
/// `wait_limit`.
async fn connection_for(
    engine: &Engine,
    wait_limit: WaitLimit,
) -> Result<Option<PooledConnection<SqliteConnection>>, sqlx::Error> {
    engine.connections.file.verify()?;
    let mut connection = pin!(engine.connections.writer.get_within(wait_limit.total()));
    loop {
        match timeout(BUSY_TIMEOUT, &mut connection).await {
            Ok(connection) => {
                return engine.connections.ready_to_write(connection?).await.map(Some);
            }
            Err(_) if engine.lock.is_held_beyond(wait_limit) => return Ok(None),
            Err(_) => {}
        }
    }
}
