//! Sessions in a map. `actix-session` has no memory store; its cookie store keeps the state in the
//! cookie, which is too small for several responses of 1 KiB.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use actix_session::storage::{LoadError, SaveError, SessionKey, SessionStore, UpdateError};
use actix_web::cookie::time::Duration;

type State = HashMap<String, String>;

/// All sessions of the process, which has one worker. They never expire.
#[derive(Clone, Default)]
pub struct Sessions {
    states: Arc<std::sync::Mutex<HashMap<String, State>>>,
    issued: Arc<AtomicU64>,
}

impl Sessions {
    fn put(&self, key: String, state: State) {
        self.states.lock().unwrap().insert(key, state);
    }
}

impl SessionStore for Sessions {
    async fn load(&self, key: &SessionKey) -> Result<Option<State>, LoadError> {
        Ok(self.states.lock().unwrap().get(key.as_ref()).cloned())
    }

    async fn save(&self, state: State, _: &Duration) -> Result<SessionKey, SaveError> {
        // The cookie is encrypted, so a sequential key cannot be guessed either.
        let key = format!("{:064}", self.issued.fetch_add(1, Ordering::Relaxed));
        self.put(key.clone(), state);
        key.try_into().map_err(|error| SaveError::Other(anyhow::Error::new(error)))
    }

    async fn update(
        &self,
        key: SessionKey,
        state: State,
        _: &Duration,
    ) -> Result<SessionKey, UpdateError> {
        self.put(key.as_ref().to_owned(), state);
        Ok(key)
    }

    async fn update_ttl(&self, _: &SessionKey, _: &Duration) -> anyhow::Result<()> {
        Ok(())
    }

    async fn delete(&self, key: &SessionKey) -> anyhow::Result<()> {
        self.states.lock().unwrap().remove(key.as_ref());
        Ok(())
    }
}
