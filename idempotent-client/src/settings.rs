//! The settings of a client.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::HeaderName;
use tokio::sync::Mutex as AsyncMutex;

use crate::{
    key::{HEADER, Key},
    pending::{PendingStore, StoredRequest},
    retries::Retries,
    specification::Specification,
};

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) header: HeaderName,
    pub(crate) retries: Retries,
    pub(crate) ttl: Duration,
    pub(crate) specification: Option<Specification>,
    pub(crate) max_response: usize,
    pub(crate) pending: Option<Arc<dyn PendingStore>>,
    /// Locked while an operation is stored or forgotten.
    pub(crate) noting: Arc<AsyncMutex<()>>,
    running: Arc<Mutex<HashMap<Key, Calls>>>,
}

/// The calls with one key that are running now.
#[derive(Default)]
struct Calls {
    running: u32,
    /// Whether there was more than one, since the first one began.
    several: bool,
}

/// A running call with a key.
pub(crate) struct Call {
    key: Key,
    running: Arc<Mutex<HashMap<Key, Calls>>>,
}

impl Call {
    /// Whether no other call has had this key since the first of them began.
    pub(crate) fn is_alone(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(&self.key).is_none_or(|calls| !calls.several)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = running.get_mut(&self.key) {
            calls.running -= 1;
            if calls.running == 0 {
                running.remove(&self.key);
            }
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header: HEADER,
            retries: Retries::DEFAULT,
            ttl: Duration::from_secs(24 * 60 * 60),
            specification: None,
            max_response: 8 * 1024 * 1024,
            pending: None,
            noting: Arc::default(),
            running: Arc::default(),
        }
    }
}

impl Settings {
    /// Registers a call with a key, until it is dropped.
    pub(crate) fn start_call(&self, key: &Key) -> Call {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = running.entry(key.clone()).or_default();
        calls.running += 1;
        calls.several |= calls.running > 1;
        Call { key: key.clone(), running: self.running.clone() }
    }

    /// How long the server remembers the key of a request.
    pub(crate) fn ttl_of(&self, request: &StoredRequest) -> Duration {
        let published = self.specification.as_ref();
        published
            .and_then(|published| published.ttl(request.method.as_str(), &request.url))
            .unwrap_or(self.ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_alone_unless_another_one_had_its_key_meanwhile() {
        let settings = Settings::default();
        let (key, other) = (Key::random(), Key::random());
        let first = settings.start_call(&key);
        drop(settings.start_call(&other));
        assert!(first.is_alone());
        let second = settings.start_call(&key);
        assert!(!first.is_alone() && !second.is_alone());
        drop(second);
        assert!(!first.is_alone(), "the second one may have been done");
        drop(first);
        assert!(settings.start_call(&key).is_alone());
        assert_eq!(settings.running.lock().unwrap().len(), 0);
    }
}
