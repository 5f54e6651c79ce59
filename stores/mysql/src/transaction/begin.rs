//! Beginning transactions, with or without a claim.

use std::mem;

use crate::{
    engine::Engine,
    error::{ErrorKind, error_class, error_kind, is_unusable},
    transaction::{guarded::GuardedTransaction, handle::MySqlTransaction},
};
use idempotent_core::{StoreError, store::Effect};

/// Begins a transaction without a claim.
pub(crate) async fn begin(engine: &Engine) -> Result<MySqlTransaction, StoreError> {
    let begun = begin_with(engine, None).await;
    let (begun, _) = begun.map_err(|error| engine.store_error("begin", error))?;
    Ok(MySqlTransaction::new(begun))
}

/// Begins a transaction with these statements; returns how many records they changed. Tries again
/// with other connections if the first is broken; nothing is begun then.
pub(super) async fn begin_with(
    engine: &Engine,
    more: Option<&str>,
) -> Result<(GuardedTransaction, u64), sqlx::Error> {
    let connections = &engine.pools.transactions;
    let (statements, health) = (&engine.statements, &engine.pools.health);
    let mut connection = connections.get().await?;
    let mut repeated = false;
    for _ in 0..connections.max_size() {
        let begun = GuardedTransaction::begin(connection, statements, health, more).await;
        let Err(error) = begun else { return begun };
        if error_kind(&error) == ErrorKind::NoResponse || !is_unusable(&error) {
            return Err(error);
        }
        engine.discard_if_stale(&error);
        // Any number of pooled connections may be lost.
        let lost = error_class(&error).effect == Effect::Unknown;
        if !lost && mem::replace(&mut repeated, true) {
            return Err(error);
        }
        connection = connections.get_verified().await?;
    }
    GuardedTransaction::begin(connection, statements, health, more).await
}
