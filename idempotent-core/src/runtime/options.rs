//! The options of a runtime.

use std::{sync::Arc, time::Duration};

use super::observer::Observer;
use crate::fingerprint::FingerprintKeys;
#[cfg(feature = "encrypt")]
use crate::keyring::Keyring;

/// Options of a [`Runtime`](crate::Runtime). Start from `RuntimeOptions::default()`, and assign the
/// fields to change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeOptions {
    /// The namespace of [runs](crate::Runtime::run), which is part of each record id and separates
    /// applications that share a store. `None` by default, which is the empty namespace. In another
    /// namespace every key is new.
    pub namespace: Option<String>,
    /// The secret keys that sign fingerprints. None by default.
    pub fingerprint_keys: FingerprintKeys,
    /// The secret keys that seal recordings, steps and inputs. None by default.
    #[cfg(feature = "encrypt")]
    pub keyring: Keyring,
    /// The average time between two purges of expired records. With `None` the runtime does not
    /// purge. 60 seconds by default.
    pub purge_every: Option<Duration>,
    /// The maximum number of duplicates of one key that wait at the same time. Any further
    /// duplicate gets the verdict *in flight* at once. 16 by default.
    pub waiters_per_key: usize,
    /// The time limit of one call to the store, after which its outcome is unknown. 10 seconds by
    /// default.
    pub store_timeout: Duration,
    /// The maximum memory, in bytes, for ends of attempts that the store does not have yet: the
    /// recordings, and 1 KiB for each end. 64 MiB by default.
    ///
    /// Beyond the limit, a recording is kept without its body, like that of an outcome that is too
    /// large to record. If that does not fit either, the end is dropped, and an error with the
    /// record id is logged. The lease then expires, so the operation may run again.
    pub deferred_bytes: usize,
    /// The average time between two counts of the records for the
    /// [observer](Observer::counted), at least a second. With `None`, which is the default, they
    /// are not counted.
    pub count_every: Option<Duration>,
    /// What gets to know about the work of the runtime. `None` by default.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            fingerprint_keys: FingerprintKeys::none(),
            #[cfg(feature = "encrypt")]
            keyring: Keyring::none(),
            purge_every: Some(Duration::from_secs(60)),
            waiters_per_key: 16,
            store_timeout: Duration::from_secs(10),
            deferred_bytes: 64 << 20,
            count_every: None,
            observer: None,
        }
    }
}
