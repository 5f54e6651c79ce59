//! What is sealed by the application's keyring, for an operator who may not have that keyring.

use idempotent_core::{
    EncodedRecording, RecordId,
    protocol::{Contents, RecordFilter},
};
use serde::Serialize;

use crate::{args::ResolveArguments, failure::Failure, select, session::Session};

/// How many records of a store are looked at to find out whether its application seals.
const SAMPLE: u32 = 50;
/// How many pages are read for them: pages may be empty.
const SAMPLED_PAGES: u32 = 10;

/// Some records of a store, and how many of them are sealed.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Sample {
    /// How many records were looked at that have anything to seal.
    pub(super) records: u64,
    /// How many of them are sealed.
    pub(super) sealed: u64,
    /// How many of those cannot be opened, because there is no keyring, or not the right key.
    pub(super) unreadable: u64,
}

impl Sample {
    /// Looks at some records. Their ids are digests, so that those of the first page are a random
    /// sample.
    pub(super) async fn of(session: &Session) -> Result<Self, Failure> {
        let all = RecordFilter::default();
        let (mut sample, mut after, mut read) = (Self::default(), None, 0);
        for _ in 0..SAMPLED_PAGES {
            let page = session.administrator.scan(&all, after.as_ref(), SAMPLE);
            let page = session.call(page).await?;
            for listed in &page.records {
                sample.add(session, &listed.id).await?;
                read += 1;
            }
            after = page.next;
            if after.is_none() || read >= SAMPLE {
                break;
            }
        }
        Ok(sample)
    }

    async fn add(&mut self, session: &Session, id: &RecordId) -> Result<(), Failure> {
        let Some(kept) = kept(session, id).await? else { return Ok(()) };
        if kept == Contents::default() {
            return Ok(());
        }
        self.records += 1;
        if is_sealed(&kept) {
            self.sealed += 1;
            self.unreadable += u64::from(!is_opened(session, id).await?);
        }
        Ok(())
    }

    /// Whether the keyring cannot be that of the application: it opens nothing of what is sealed.
    fn is_foreign(self) -> bool {
        self.sealed > 0 && self.unreadable == self.sealed
    }

    /// What somebody should know about the keyring, and what to do.
    pub(super) fn finding(self, has_keyring: bool) -> Option<(String, &'static str)> {
        let Self { records, sealed, unreadable } = self;
        if unreadable == 0 {
            return None;
        }
        Some(if has_keyring {
            let found = format!(
                "{unreadable} of {sealed} sealed records that were looked at cannot be opened by \
                 any key of the keyring: they are neither replayed nor run again."
            );
            (found, "Add the keys that have sealed them, also to the application.")
        } else {
            let found = format!("{sealed} of {records} records that were looked at are sealed.");
            (
                found,
                "Give the application's keyring to resolve keys and to see bodies: --keyring-file.",
            )
        })
    }
}

/// The parts of a record that an application may seal, as the store has them.
async fn kept(session: &Session, id: &RecordId) -> Result<Option<Contents>, Failure> {
    let found = session.call(async {
        match session.store.look_up(id).await {
            Err(error) if error.is_unreadable() => Ok(None),
            found => found,
        }
    });
    Ok(found.await?.map(|found| Contents::of(&found.record)))
}

fn is_sealed(contents: &Contents) -> bool {
    let Contents { recording, steps, input, .. } = contents;
    [recording, steps, input].iter().any(|part| part.first() == Some(&EncodedRecording::SEALED))
}

/// Whether the keyring opens a record.
async fn is_opened(session: &Session, id: &RecordId) -> Result<bool, Failure> {
    let found = session.call(session.administrator.look_up(id)).await?;
    Ok(found.is_none_or(|found| !is_sealed(&Contents::of(&found.record))))
}

/// Fails if the response of a resolution would be stored unsealed by an application that seals, or
/// be sealed with a key that the application does not have.
pub(super) async fn verify_resolution(
    session: &Session,
    resolve: &ResolveArguments,
) -> Result<(), Failure> {
    match (session.sealing_key, resolve.unsealed) {
        (Some(_), true) => {
            return Err(Failure::Usage("--unsealed: a response is sealed with a keyring".into()));
        }
        (Some(_), false) => return verify_keyring(session).await,
        (None, true) => return Ok(()),
        (None, false) => {}
    }
    let id = select::id(session, &resolve.record.selection).await?;
    let is_sealed = kept(session, &id).await?.is_some_and(|kept| is_sealed(&kept));
    if is_sealed || Sample::of(session).await?.sealed > 0 {
        return Err(Failure::Usage(
            "the application seals what it stores, and the response would be stored as it is: \
             give the application's keyring with --keyring-file or IDEMPOTENCY_KEYRING, or add \
             --unsealed"
                .into(),
        ));
    }
    Ok(())
}

/// Fails if the keyring cannot be that of the application, which could then not read what it seals.
pub(super) async fn verify_keyring(session: &Session) -> Result<(), Failure> {
    if Sample::of(session).await?.is_foreign() {
        return Err(Failure::Usage(
            "the keyring opens none of the sealed records, so that the application could not read \
             what it seals; check the ids and the digits of its keys"
                .into(),
        ));
    }
    Ok(())
}
