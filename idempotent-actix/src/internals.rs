//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use idempotent_core::internals::{Gauges, gauges, simulated_runtime};

#[cfg(feature = "_tx")]
use crate::tx::{Tx, TxError};
use crate::{builder::IdempotencyBuilder, idempotency::Idempotency};

/// Builds the handle for a simulation, with the runtime of
/// [`simulated_runtime`](idempotent_core::internals::simulated_runtime).
pub fn simulated(builder: IdempotencyBuilder) -> Idempotency {
    builder.build_with(simulated_runtime)
}

/// Reads how much the runtime of a handle keeps in memory.
pub fn runtime_gauges(idempotency: &Idempotency) -> Gauges {
    gauges(idempotency.runtime())
}

/// The transaction of a handler, whose connection may be of another type than the database's.
///
/// # Errors
/// As for [`Tx::connection`].
#[cfg(feature = "_tx")]
pub async fn transaction<D: sqlx::Database>(
    tx: &mut Tx<D>,
) -> Result<&mut (dyn idempotent_core::store::Transaction + 'static), TxError> {
    tx.transaction().await.map(|transaction| &mut **transaction)
}
