//! What the tests of this repository need of a runtime beyond its public API.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use super::{
    Runtime, environment::Environment, options::RuntimeOptions, parts::RuntimeParts,
    process::Process,
};
#[cfg(feature = "encrypt")]
use crate::keyring::Keyring;
use crate::{fingerprint::RequestDigest, record_id::RecordId, store::Store};

/// How much a runtime keeps in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// The leases that are renewed.
    pub live_leases: usize,
    /// The duplicates that wait, of all keys.
    pub waiters: usize,
    /// The keys with duplicates that wait.
    pub waited_keys: usize,
    /// The ends that the store does not have yet.
    pub deferred_ends: usize,
    /// The bytes that those ends take.
    pub deferred_bytes: usize,
}

/// Reads the gauges of a runtime.
pub fn gauges(runtime: &Runtime) -> Gauges {
    let parts = &runtime.parts;
    let load = parts.deferrals.ledger.load();
    let leases = parts.renewer.leases.state.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = parts.waiters.keys.lock().unwrap_or_else(PoisonError::into_inner);
    Gauges {
        live_leases: leases.leases.len(),
        waiters: parts.waiters.total.load(Ordering::SeqCst),
        waited_keys: waited.len(),
        deferred_ends: load.ends,
        deferred_bytes: load.bytes,
    }
}

/// Creates a runtime that belongs to another process, as after a fork.
pub fn runtime_of_another_process(store: Arc<dyn Store>, options: RuntimeOptions) -> Runtime {
    let parts = RuntimeParts::new(store, options, Process::another(), Environment::System);
    Runtime { parts: Arc::new(parts) }
}

/// Creates a runtime for a simulation: its time is that of the caller's tokio runtime, its
/// background work runs on the caller's `LocalSet`, and its random numbers are those of `fastrand`.
pub fn simulated_runtime(store: Arc<dyn Store>, options: RuntimeOptions) -> Runtime {
    let parts = RuntimeParts::new(store, options, Process::current(), Environment::Simulation);
    Runtime { parts: Arc::new(parts) }
}

/// Registers a key as claimed in an open transaction until the result is dropped; `None` if it is
/// registered already.
pub fn open_transaction(
    runtime: &Runtime,
    id: &RecordId,
    digest: RequestDigest,
) -> Option<impl Sized + use<>> {
    let parts = &runtime.parts;
    parts.open.register(id, parts.options.fingerprint_keys.sign(digest)).ok()
}

/// Returns a store that seals what it is given with a keyring, as that of a runtime.
#[cfg(feature = "encrypt")]
pub fn sealing_store(store: Arc<dyn Store>, keyring: &Keyring) -> Arc<dyn Store> {
    super::sealing::with_keyring(store, keyring)
}
