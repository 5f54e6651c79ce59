//! Whether a transaction keeps its session, and its advisory lock keeps other sessions out.

use std::{error::Error, time::Duration};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::opening::open;
use crate::error::{NAME, connect_error, ends_session, is_reply, is_undefined};
use idempotent_core::StoreError;

/// How long a second session is waited for. A pooler may have one session only.
const SECOND_SESSION: Duration = Duration::from_secs(2);

/// Refuses a server whose advisory locks keep nobody out, and a pooler that does not keep the
/// session of a transaction. The server is asked in the way in which claims use it, because no name
/// and no version says what it does: CockroachDB has had the functions for years before they
/// locked anything, and a pooler has no name.
///
/// If the second session cannot be had in time, only the first one is verified.
pub(crate) async fn verify(
    one: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<(), StoreError> {
    let asked = ask(one, options).await;
    // Also after an error, because the connection may be the application's.
    let ended = sqlx::raw_sql("ROLLBACK").execute(one).await.map_err(connect_error);
    asked.and(ended.map(drop))
}

async fn ask(one: &mut PgConnection, options: &PgConnectOptions) -> Result<(), StoreError> {
    // Random, so that neither another process nor the application has the lock.
    let lock = format!("SELECT pg_try_advisory_xact_lock({}) AS locked", fastrand::i64(..));
    begin(one, options, &lock).await?;
    // Each is a message of its own, as the statements of a handler are.
    if !locked(one, &lock).await.map_err(connect_error)? {
        return Err(refused(UnsafeTransactions::LostSession { source: None }));
    }
    match timeout(SECOND_SESSION, locked_by_another(options, &lock)).await {
        Ok(Ok(true)) => {
            // Between the two locks the server may end the first session, and with it the lock;
            // then this fails.
            locked(one, &lock).await.map_err(connect_error)?;
            Err(refused(UnsafeTransactions::NothingLocked { source: None }))
        }
        Ok(Err(error)) if !is_reply(&error) => Err(connect_error(error)),
        Ok(Ok(false) | Err(_)) | Err(_) => Ok(()),
    }
}

/// Begins a transaction that has the lock.
async fn begin(
    one: &mut PgConnection,
    options: &PgConnectOptions,
    lock: &str,
) -> Result<(), StoreError> {
    let Err(error) = locked(one, &format!("BEGIN; {lock}")).await else { return Ok(()) };
    if is_undefined(&error) {
        let source = Some(error.into());
        return Err(refused(UnsafeTransactions::NothingLocked { source }));
    }
    if !ends_session(&error) {
        return Err(connect_error(error));
    }
    // A pooler may also have closed the connection for another reason. If it closes a second one
    // that has just been used, then because of the transaction.
    let mut again = open(options).await.map_err(connect_error)?;
    sqlx::raw_sql("SELECT 1").execute(&mut again).await.map_err(connect_error)?;
    match locked(&mut again, &format!("BEGIN; {lock}")).await {
        Err(again) if ends_session(&again) => {
            Err(refused(UnsafeTransactions::LostSession { source: Some(again.into()) }))
        }
        _ => Err(connect_error(error)),
    }
}

/// Whether another session gets the lock.
async fn locked_by_another(options: &PgConnectOptions, lock: &str) -> Result<bool, sqlx::Error> {
    let mut other = open(options).await?;
    let locked = locked(&mut other, lock).await?;
    let _ = other.close().await;
    Ok(locked)
}

/// Executes statements, of which the last one takes the lock; returns whether it was free.
async fn locked(connection: &mut PgConnection, text: &str) -> Result<bool, sqlx::Error> {
    let rows = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).fetch_all(connection).await?;
    rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get("locked")
}

fn refused(why: UnsafeTransactions) -> StoreError {
    StoreError::permanent(NAME, "connect", why)
}

type BoxedError = Box<dyn Error + Send + Sync>;

/// What makes the transactions of a server unsafe.
#[derive(Debug, thiserror::Error)]
enum UnsafeTransactions {
    #[error(
        "the server's advisory locks do not lock: `pg_try_advisory_xact_lock` must keep a second \
         session out, or a key is claimed twice; use PostgreSQL or a release of this server that \
         has such locks, and see the guide `servers`"
    )]
    NothingLocked { source: Option<BoxedError> },
    #[error(
        "the statements of a transaction do not share a session, as behind a pooler in statement \
         mode; set `pool_mode = transaction` or `session`, or connect to the server itself"
    )]
    LostSession { source: Option<BoxedError> },
}
