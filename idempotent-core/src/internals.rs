//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

#[cfg(feature = "encrypt")]
pub use crate::runtime::internals::sealing_store;
pub use crate::{
    runtime::internals::{
        Gauges, gauges, open_transaction, runtime_of_another_process, simulated_runtime,
    },
    sync::{Mutex, MutexGuard, interleave},
};
