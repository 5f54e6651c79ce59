//! The options of a runtime.

use std::time::Duration;

use crate::fingerprint::FingerprintKeys;

/// Options of a [`Runtime`](crate::Runtime).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeOptions {
    /// Separates applications that share a store: the namespace is part of each record id. With
    /// `None`, the default, the store's URL decides. Another namespace is another set of records,
    /// so changing it has the effect of an empty store.
    pub namespace: Option<String>,
    /// Secrets that sign fingerprints. None by default.
    pub fingerprint_keys: FingerprintKeys,
    /// The average time between two purges of expired records; with `None` the runtime does not
    /// purge. 60 s by default.
    pub purge_every: Option<Duration>,
    /// The maximum number of duplicates of one key that wait at the same time. Further duplicates
    /// are in flight at once. 16 by default.
    pub waiters_per_key: usize,
    /// The time limit of one call to the store. The outcome of a call that exceeds it is unknown.
    /// 10 s by default.
    pub store_timeout: Duration,
    /// The maximum memory in bytes for ends of attempts that the store does not have yet:
    /// recordings with their headers, and 1 KiB for each end. 64 MiB by default.
    ///
    /// Beyond the limit a recording is kept without its body, like that of a response that is too
    /// large to record. If its status and headers do not fit either, the end is dropped, an error
    /// is logged with the record id, and the lease expires, so that the operation may run again.
    pub deferred_bytes: usize,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            fingerprint_keys: FingerprintKeys::none(),
            purge_every: Some(Duration::from_secs(60)),
            waiters_per_key: 16,
            store_timeout: Duration::from_secs(10),
            deferred_bytes: 64 << 20,
        }
    }
}
