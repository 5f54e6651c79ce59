//! Seals again what is not sealed, or is sealed with an older key.

use super::{administrator::Administrator, sealing::Sealer};
use crate::{
    error::StoreError,
    protocol::{PagePosition, RecordFilter, Snapshot},
    record_id::RecordId,
};

/// How many records are read at a time.
const RESEALED_AT_ONCE: u32 = 200;

/// The outcome for some of the records of a store. The result of [`Administrator::reseal`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResealedPage {
    /// How many records were sealed with the key that seals.
    pub resealed: u64,
    /// How many records needed nothing: sealed with that key already, or with nothing to seal.
    pub current: u64,
    /// How many records have changed since they were read, and were left. Repeat the calls to seal
    /// what is left of them.
    pub changed: u64,
    /// The records that cannot be read, because a part of them cannot be opened. They were left.
    pub unreadable: Vec<RecordId>,
    /// Where the next call continues. `None` if all records were read.
    pub next: Option<PagePosition>,
}

enum Resealed {
    Done,
    Current,
    Changed,
    Unreadable,
}

impl Administrator {
    /// Seals up to 200 records with the key of the
    /// [`keyring`](crate::runtime::RuntimeOptions::keyring) that seals: those that are not sealed,
    /// and those that are sealed with another key of the keyring. Call it again with
    /// [`ResealedPage::next`] as `after` until that is `None`: all calls together read the whole
    /// store. They may be repeated, and requests may be served at the same time.
    ///
    /// Once all calls have left nothing `changed` and nothing `unreadable`, no record needs the
    /// older keys. Records that have expired are left to the purge.
    ///
    /// # Errors
    /// Fails if the keyring has no key that seals.
    pub async fn reseal(&self, after: Option<&PagePosition>) -> Result<ResealedPage, StoreError> {
        let keyring = &self.parts.options.keyring;
        if !keyring.seals() {
            return Err(StoreError::permanent("runtime", "reseal", NoSealingKey));
        }
        let sealer = Sealer::new(keyring.clone());
        let found = self.scan(&RecordFilter::default(), after, RESEALED_AT_ONCE).await?;
        let mut page = ResealedPage { next: found.next, ..ResealedPage::default() };
        for listed in found.records {
            match self.reseal_record(&sealer, &listed.id).await? {
                Resealed::Done => page.resealed += 1,
                Resealed::Current => page.current += 1,
                Resealed::Changed => page.changed += 1,
                Resealed::Unreadable => page.unreadable.push(listed.id),
            }
        }
        Ok(page)
    }

    /// Between the look-up and the replacement an attempt may note a step, or end; the comparison
    /// with what was read prevents that this is overwritten (case
    /// `a_completion_between_read_and_replace_is_kept`).
    async fn reseal_record(&self, sealer: &Sealer, id: &RecordId) -> Result<Resealed, StoreError> {
        let store = &self.parts.store;
        let record = match store.limit("look up", store.kept().look_up(id)).await {
            Ok(Some(Snapshot { record, .. })) => record,
            Ok(None) => return Ok(Resealed::Current),
            Err(error) if error.is_unreadable() => return Ok(Resealed::Unreadable),
            Err(error) => return Err(error),
        };
        let replacement = match sealer.resealed(id, &record) {
            Ok(Some(replacement)) => replacement,
            Ok(None) => return Ok(Resealed::Current),
            Err(error) => {
                tracing::error!(
                    id = %id.short(), %error, "a record cannot be sealed again; it is left as it is"
                );
                return Ok(Resealed::Unreadable);
            }
        };
        let replaced = self.call("reseal", |store| store.replace(id, &replacement));
        Ok(if replaced.await? { Resealed::Done } else { Resealed::Changed })
    }
}

/// The keyring of the runtime seals nothing.
#[derive(Debug, thiserror::Error)]
#[error("the keyring has no key that seals; add one with `Keyring::with`")]
struct NoSealingKey;
