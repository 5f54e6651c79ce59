//! The store: each method is one step in the locked folder.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, Store, StoreError,
    clock::{Clock, Timestamp, millis},
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, Snapshot,
    },
    transition::{self, Change, Event, EventOutcome},
};

use crate::folder::Folder;

/// A store that keeps each record in a file.
///
/// Any number of processes on one machine may share the folder, if it is on a local file system:
/// a lock of the operating system, which ends with its process, makes each step exclusive.
///
/// # What it does not give
/// * **Durability after a loss of power.** A record survives the death of every process, but
///   nothing is flushed to the disk. A file that was cut off counts as unreadable, so its operation
///   neither runs again nor is replayed.
/// * **Speed.** One step runs at a time, whatever its key, and a purge reads every record while it
///   has the folder locked.
/// * **A limit on its size.** It grows until the purge removes what has expired.
/// * **Resumption** of operations without their clients, and **transactions** (`Tx`): it keeps the
///   defaults of the contract, which say so.
#[derive(Clone)]
pub struct FileStore {
    folder: Folder,
    clock: Arc<dyn Clock>,
}

impl FileStore {
    /// Opens the store in this folder, and creates the folder if it does not exist. Other files in
    /// it are left alone.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        Self::with_clock(folder, MachineClock)
    }

    /// Opens the store with another clock, such as one that a test sets. All users of a folder must
    /// have the same one.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn with_clock(folder: impl Into<PathBuf>, clock: impl Clock) -> io::Result<Self> {
        Ok(Self { folder: Folder::create(folder.into())?, clock: Arc::new(clock) })
    }

    /// Takes one step of the state machine.
    async fn step<T: Send + 'static>(
        &self,
        operation: &'static str,
        id: RecordId,
        step: impl FnOnce(Option<&Record>, Timestamp) -> (Change, T) + Send + 'static,
    ) -> Result<T, StoreError> {
        self.locked(operation, move |folder, now| {
            let record = folder.read(&id)?;
            let (change, outcome) = step(record.as_ref(), now);
            folder.apply(&id, change)?;
            Ok(outcome)
        })
        .await
    }

    /// Makes a call with the folder locked, on a thread that may block. The call ends even if its
    /// future is dropped, and then unlocks the folder. The time is read once the folder is locked,
    /// so that no step sees an earlier one than the step before.
    async fn locked<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Folder, Timestamp) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Self { folder, clock } = self.clone();
        let blocking = tokio::task::spawn_blocking(move || {
            let _locked = folder.lock()?;
            call(&folder, clock.now())
        });
        let result = blocking.await.map_err(|error| StoreError::transient(NAME, operation, error));
        result?.map_err(|error| store_error(operation, error))
    }
}

const NAME: &str = "files";

/// Says whether the call may be repeated, and whether only one record is concerned.
fn store_error(operation: &'static str, error: io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::InvalidData {
        StoreError::unreadable(NAME, operation, error)
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        StoreError::permanent(NAME, operation, error)
    } else {
        StoreError::transient(NAME, operation, error)
    }
}

#[async_trait]
impl Store for FileStore {
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let claim = claim.clone();
        self.step("claim", *id, move |record, now| transition::claim(record, &claim, now)).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        let mut outcomes = Vec::new();
        for Renewal { lease, extend, .. } in leases.iter().copied() {
            let renew = move |record: Option<&Record>, now| {
                transition::renew(record, lease.owner, extend, now)
            };
            // A record that cannot be read must not keep the other leases from their renewal.
            let renewed = self.step("renew", lease.id, renew).await;
            outcomes.push(renewed.map_or(RenewOutcome::Unknown, RenewOutcome::from));
        }
        Ok(outcomes)
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let (Lease { id, owner }, note) = (*lease, note.clone());
        self.step("note", id, move |record, _| transition::note(record, owner, &note)).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let (Lease { id, owner }, recording) = (*lease, recording.clone());
        let complete = move |record: Option<&Record>, now| {
            transition::complete(record, owner, &recording, now)
        };
        self.step("complete", id, complete).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        let Lease { id, owner } = *lease;
        self.step("release", id, move |record, _| transition::release(record, owner)).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let Lease { id, owner } = *lease;
        self.step("abandon", id, move |record, now| transition::abandon(record, owner, policy, now))
            .await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let id = *id;
        self.locked("look up", move |folder, now| {
            let record = folder.read(&id)?.filter(|record| !record.is_expired(now));
            Ok(record.map(|record| Snapshot::new(record, now)))
        })
        .await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        _audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        let (seen, resolution) = (*seen, resolution.clone());
        let resolve =
            move |record: Option<&Record>, now| transition::resolve(record, seen, &resolution, now);
        self.step("resolve", *id, resolve).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.locked("purge", move |folder, now| {
            let mut removed = 0;
            for id in folder.ids()? {
                if removed == u64::from(limit) {
                    break;
                }
                // A record that cannot be read stays, for its operation may have been done.
                let Ok(Some(record)) = folder.read(&id) else { continue };
                let (change, outcome) = transition::transition(Some(&record), &Event::Purge, now);
                folder.apply(&id, change)?;
                removed += u64::from(outcome == EventOutcome::Purge(true));
            }
            Ok(removed)
        })
        .await
    }
}

/// The clock of the machine, which all its processes share. Unlike
/// [`SystemClock`](idempotent_core::clock::SystemClock), it follows when the system's time is set;
/// otherwise a process that started before would disagree with one that started after.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock;

impl Clock for MachineClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock of the store")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Timestamp::from_millis(millis(since_epoch.unwrap_or(Duration::ZERO)))
    }
}
