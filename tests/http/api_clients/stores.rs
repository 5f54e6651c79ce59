//! Stores of pending operations that an application has written.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use idempotent_client::{Key, PendingOperation, PendingState, PendingStore, StoredRequest};

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A store in memory: each operation with its calls. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Own(Arc<Mutex<Vec<(PendingOperation, u32)>>>);

impl Own {
    pub(super) fn is_finished(&self) -> bool {
        let stored = self.0.lock().unwrap();
        stored.iter().all(|(known, _)| known.state == PendingState::Finished)
    }

    pub(super) fn has_open(&self) -> bool {
        let stored = self.0.lock().unwrap();
        stored.iter().any(|(known, _)| known.state == PendingState::Open)
    }
}

#[async_trait]
impl PendingStore for Own {
    async fn begin(&self, new: &PendingOperation) -> Result<Option<PendingOperation>, BoxError> {
        let mut stored = self.0.lock().unwrap();
        let position = |is_same: &dyn Fn(&PendingOperation) -> bool| {
            stored.iter().position(|(known, _)| is_same(known))
        };
        let at = position(&|known| new.label.is_some() && known.label == new.label);
        let at = at.or_else(|| position(&|known| known.key == new.key));
        let Some(at) = at else {
            stored.push((new.clone(), 1));
            return Ok(None);
        };
        let (known, calls) = stored[at].clone();
        let label = known.label.clone().or_else(|| new.label.clone());
        if known.state == PendingState::NotDone {
            let again = PendingOperation { key: known.key, label, ..new.clone() };
            stored[at] = (again.clone(), 1);
            return Ok(Some(PendingOperation { state: PendingState::NotDone, ..again }));
        }
        stored[at] = (PendingOperation { label, ..known.clone() }, calls + 1);
        Ok(Some(known))
    }

    async fn finish(&self, key: &Key) -> Result<(), BoxError> {
        let mut stored = self.0.lock().unwrap();
        stored.retain(|(known, _)| known.key != *key || known.label.is_some());
        for (known, _) in stored.iter_mut().filter(|(known, _)| known.key == *key) {
            known.state = PendingState::Finished;
        }
        Ok(())
    }

    async fn retract(&self, key: &Key) -> Result<bool, BoxError> {
        let mut stored = self.0.lock().unwrap();
        let only_call = stored.iter().position(|(known, calls)| {
            known.key == *key && known.state == PendingState::Open && *calls == 1
        });
        let Some(at) = only_call else { return Ok(false) };
        if stored[at].0.label.is_some() {
            stored[at].0.state = PendingState::NotDone;
        } else {
            stored.remove(at);
        }
        Ok(true)
    }

    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError> {
        let mut stored = self.0.lock().unwrap();
        let open = stored.iter_mut().filter(|(known, _)| known.state == PendingState::Open);
        // As from the columns of a table.
        let pending = open.map(|(known, calls)| {
            *calls += 1;
            PendingOperation {
                key: known.key.as_str().parse().unwrap(),
                label: known.label.clone(),
                request: StoredRequest {
                    method: known.request.method.clone(),
                    url: known.request.url.clone(),
                    headers: known.request.headers.clone(),
                    body: known.request.body.clone(),
                },
                has_credentials: known.has_credentials,
                started_at: known.started_at,
                expires_at: known.expires_at,
                state: known.state,
            }
        });
        Ok(pending.collect())
    }

    async fn forget(&self, key: &Key) -> Result<(), BoxError> {
        self.0.lock().unwrap().retain(|(known, _)| known.key != *key);
        Ok(())
    }
}

/// A store that cannot note that an operation was not done.
pub(super) struct Unretracting(pub(super) Own);

#[async_trait]
impl PendingStore for Unretracting {
    async fn begin(&self, new: &PendingOperation) -> Result<Option<PendingOperation>, BoxError> {
        self.0.begin(new).await
    }

    async fn finish(&self, key: &Key) -> Result<(), BoxError> {
        self.0.finish(key).await
    }

    async fn retract(&self, _: &Key) -> Result<bool, BoxError> {
        Err("the disk is full".into())
    }

    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError> {
        self.0.pending().await
    }

    async fn forget(&self, key: &Key) -> Result<(), BoxError> {
        self.0.forget(key).await
    }
}

/// A store that fails.
pub(super) struct Broken;

#[async_trait]
impl PendingStore for Broken {
    async fn begin(&self, _: &PendingOperation) -> Result<Option<PendingOperation>, BoxError> {
        Err("the disk is full".into())
    }

    async fn finish(&self, _: &Key) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }

    async fn retract(&self, _: &Key) -> Result<bool, BoxError> {
        Err("the disk is full".into())
    }

    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError> {
        Err("the disk is full".into())
    }

    async fn forget(&self, _: &Key) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
}

/// A store whose calls of these names take this long.
pub(super) struct Slow(pub(super) Own, pub(super) &'static [&'static str], pub(super) Duration);

impl Slow {
    async fn reach(&self, name: &str) {
        if self.1.contains(&name) {
            tokio::time::sleep(self.2).await;
        }
    }
}

#[async_trait]
impl PendingStore for Slow {
    async fn begin(&self, new: &PendingOperation) -> Result<Option<PendingOperation>, BoxError> {
        self.reach("begin").await;
        self.0.begin(new).await
    }

    async fn finish(&self, key: &Key) -> Result<(), BoxError> {
        self.reach("finish").await;
        self.0.finish(key).await
    }

    async fn retract(&self, key: &Key) -> Result<bool, BoxError> {
        self.reach("retract").await;
        self.0.retract(key).await
    }

    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError> {
        self.0.pending().await
    }

    async fn forget(&self, key: &Key) -> Result<(), BoxError> {
        self.0.forget(key).await
    }
}
