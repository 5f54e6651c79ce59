//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use idempotent_core::internals::{Gauges, gauges, simulated_runtime};

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
