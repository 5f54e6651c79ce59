//! Seals what the store keeps of an operation, and opens it again.
//!
//! Between the runtime and the application's store is one [`SealingStore`]. Nothing else of the
//! runtime sees what is sealed, except [`reseal`](super::Administrator::reseal).

use std::sync::Arc;

use crate::{keyring::Keyring, store::Store};

pub(super) use self::contents::Sealer;
use self::sealing_store::SealingStore;

mod contents;
mod sealing_store;
mod sealing_transaction;

/// The store, behind what seals and opens. Without a keyring it is the store itself.
pub(super) fn with_keyring(store: Arc<dyn Store>, keyring: &Keyring) -> Arc<dyn Store> {
    if keyring.is_none() {
        return store;
    }
    Arc::new(SealingStore::new(store, Sealer::new(keyring.clone())))
}
