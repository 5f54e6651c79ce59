//! Verifies that the server keeps a handler from ending its transaction.

use crate::{
    engine::Engine,
    error::{ErrorKind, NAME, error_kind, number},
    server::timeouts::RESPONSE_TIMEOUT,
    sql::positional::message,
    transaction::{REFUSED, Xid},
};
use idempotent_core::StoreError;

/// Begins a transaction as that of a handler, in which the server has to refuse a `COMMIT`.
pub(super) async fn verify(engine: &Engine) -> Result<(), StoreError> {
    const OPERATION: &str = "check";
    let to_store_error = |error| engine.store_error(OPERATION, error);
    let mut connection = match engine.pools.transactions.get_verified().await {
        Ok(connection) => connection,
        Err(sqlx::Error::PoolTimedOut) => return Ok(()),
        Err(error) => return Err(to_store_error(error)),
    };
    let xid = Xid::new();
    let asked = async {
        message(xid.start()).execute(&mut *connection).await?;
        let committed = message("COMMIT").execute(&mut *connection).await;
        let refused = committed.as_ref().err().and_then(number) == Some(REFUSED);
        message(xid.roll_back()).execute(&mut *connection).await?;
        Ok(refused)
    };
    let asked = engine.pools.health.exchange(RESPONSE_TIMEOUT, asked).await;
    let is_lost = asked.as_ref().err().map(error_kind) == Some(ErrorKind::NoResponse);
    if is_lost {
        drop(connection)
    } else {
        connection.close()
    }
    match asked {
        Ok(true) => Ok(()),
        Ok(false) => Err(StoreError::permanent(NAME, OPERATION, Unguarded)),
        Err(error) => Err(to_store_error(error)),
    }
}

/// The server commits an XA transaction by `COMMIT`.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server lets a handler commit its transaction without its response, because it executes \
     `COMMIT` within an XA transaction; use a MySQL or MariaDB server"
)]
struct Unguarded;
