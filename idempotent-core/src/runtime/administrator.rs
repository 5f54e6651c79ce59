//! What operators do with the records of a store.

use std::sync::Arc;

use super::parts::RuntimeParts;
use crate::{
    error::StoreError,
    lease::OwnerToken,
    protocol::{
        Actor, AuditAction, AuditEntry, AuditPage, AuditedState, ListedRecord, PagePosition,
        RecordCount, RecordFilter, RecordPage, Removal, Resolution, ResolveOutcome, Snapshot,
    },
    record_id::{RecordId, RecordIdError},
    recording::EncodedRecording,
    scope::{Principal, ScopeId},
    store::Administration,
};

/// The time limit of a call that may read the whole store, as a multiple of the time limit of a
/// call that a client waits for.
const TIMEOUTS: u32 = 6;
/// How many records that begin with the same digits are told apart.
const MAX_FOUND: u32 = 10;
/// How many records an erasure reads at a time.
const ERASED_AT_ONCE: u32 = 200;

/// Lists the records of a store, and carries out the decisions of operators. From
/// [`Runtime::administrator`](super::Runtime::administrator).
///
/// Each decision says who made it and why; the store keeps that in a log that outlives the record.
/// Applications show these methods to people whom they have authorised: nothing here asks who
/// calls.
///
/// # Errors
/// Every method fails if the store fails, or with an
/// [unsupported](StoreError::is_unsupported) error if it has no
/// [`Administration`](crate::store::Administration). A call takes at most six times the
/// [`store_timeout`](super::RuntimeOptions::store_timeout).
#[derive(Clone)]
pub struct Administrator {
    parts: Arc<RuntimeParts>,
}

/// The records whose ids begin with some digits. The result of [`Administrator::find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRecord {
    /// There is none.
    Absent,
    /// There is one.
    One(Box<ListedRecord>),
    /// There are several: give more digits. Contains the first ten of them.
    Ambiguous(Vec<ListedRecord>),
}

/// What was done about some records of a principal. The result of [`Administrator::erase`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasedPage {
    /// How many records were removed.
    pub erased: u64,
    /// The records that stay, because they are held or in flight.
    pub left: Vec<ListedRecord>,
    /// Where to go on. `None`: all records were read.
    pub next: Option<PagePosition>,
}

impl Administrator {
    pub(super) fn new(parts: Arc<RuntimeParts>) -> Self {
        Self { parts }
    }

    /// Returns the digests by which records may show the principal of a scope, for
    /// [`RecordFilter::principals`]: signed with each of the
    /// [`fingerprint_keys`](super::RuntimeOptions::fingerprint_keys), and plain.
    #[must_use]
    pub fn principals(&self, scope: &ScopeId) -> Vec<Principal> {
        self.parts.options.fingerprint_keys.all_signed(scope.principal())
    }

    /// Returns a page of the records that may need somebody: the held ones, those in flight that
    /// would be held if they were abandoned, and those in flight whose lease was renewed, by their
    /// age. Its cost depends on their number, not on that of all records. See
    /// [`Administration::watched`].
    pub async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        self.call("list", async |store| store.watched(filter, after, limit).await).await
    }

    /// Returns a page of all records. It reads the whole store, page by page; a page may be empty
    /// although it is not the last one. See [`Administration::scan`].
    pub async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        self.call("scan", async |store| store.scan(filter, after, limit).await).await
    }

    /// Returns the record whose id begins with these hexadecimal digits, such as the 8 that logs
    /// show. An odd number of them will do.
    ///
    /// # Errors
    /// The outer result fails if the text is not the beginning of an id.
    pub async fn find(
        &self,
        digits: &str,
    ) -> Result<Result<FoundRecord, StoreError>, RecordIdError> {
        let (first, last) = RecordId::range(digits)?;
        let found = self
            .call("find", async |store| store.find(&first, &last, MAX_FOUND).await)
            .await
            .map(|mut found| match found.len() {
                0 => FoundRecord::Absent,
                1 => found.pop().map_or(FoundRecord::Absent, |one| FoundRecord::One(one.into())),
                _ => FoundRecord::Ambiguous(found),
            });
        Ok(found)
    }

    /// Reads a whole record. Returns `None` if the key is absent.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.parts.store.call(|store| store.look_up(id)).await
    }

    /// Resolves a held key, if the attempt that the operator saw still owns it. The call may be
    /// repeated.
    ///
    /// This works on a store without [`Administration`] too, which keeps no log.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        actor: &Actor,
    ) -> Result<ResolveOutcome, StoreError> {
        let Some(Snapshot { record, at }) = self.look_up(id).await? else {
            return Ok(ResolveOutcome::Conflict);
        };
        let (action, after) = match resolution {
            Resolution::Complete(recording) => {
                let status = EncodedRecording::status_of(recording);
                (AuditAction::Complete, AuditedState::Completed(status))
            }
            Resolution::Release => (AuditAction::Release, AuditedState::Absent),
        };
        let about = AuditEntry::about(action, *id, &record, at, actor.clone());
        let audit = AuditEntry { before: AuditedState::Held, after, ..about };
        let store = &self.parts.store;
        let outcome = store.call(|store| store.resolve(id, seen, resolution, &audit)).await?;
        self.parts.waiters.wake(id);
        Ok(outcome)
    }

    /// Removes a completed record that was seen with this owner, so that its key is free again.
    /// Returns whether it was removed: it stays if another attempt has it by now, or if it is held
    /// or in flight.
    pub async fn forget(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let Some(Snapshot { record, at }) = self.look_up(id).await? else { return Ok(false) };
        let removal = Removal::of_completed(*seen);
        let about = AuditEntry::about(AuditAction::Forget, *id, &record, at, actor.clone());
        self.call("forget", async |store| store.remove(id, &removal, &about).await).await
    }

    /// Removes some records of these [principals](Self::principals): call it again with
    /// [`ErasedPage::next`] until that is `None`. Records that are held or in flight are left, and
    /// reported, unless `live` is true. An attempt whose record is removed while it runs stores its
    /// outcome in a new record, as after any loss of a record: erase that one later.
    ///
    /// A record that is claimed meanwhile may not be found.
    pub async fn erase(
        &self,
        principals: &[Principal],
        live: bool,
        after: Option<&PagePosition>,
        actor: &Actor,
    ) -> Result<ErasedPage, StoreError> {
        let mut page = ErasedPage::default();
        // A filter without principals would match every record.
        if principals.is_empty() {
            return Ok(page);
        }
        let filter = RecordFilter { principals: principals.to_vec(), ..RecordFilter::default() };
        let found = self.scan(&filter, after, ERASED_AT_ONCE).await?;
        for listed in found.records {
            let (id, record) = (&listed.id, &listed.record);
            let removal = Removal { seen: record.owner, live };
            let about = AuditEntry::about(AuditAction::Erase, *id, record, found.at, actor.clone());
            if self.call("erase", async |store| store.remove(id, &removal, &about).await).await? {
                page.erased += 1;
            } else {
                page.left.push(listed);
            }
        }
        page.next = found.next;
        Ok(page)
    }

    /// Counts the records: exactly those that are [watched](Self::watched), and the others as
    /// exactly as is cheap.
    pub async fn count(&self) -> Result<RecordCount, StoreError> {
        self.call("count", async |store| store.count().await).await
    }

    /// Returns a page of the log of operators' decisions, the latest first.
    pub async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        self.call("read the audit log", async |store| store.audit(after, limit).await).await
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl AsyncFnOnce(&dyn Administration) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let store = &self.parts.store;
        let administration = store.store().administration();
        let administration =
            administration.ok_or_else(|| StoreError::unsupported("store", operation))?;
        let limit = store.timeout().saturating_mul(TIMEOUTS);
        store.limit_to(limit, Box::pin(call(administration))).await
    }
}

impl std::fmt::Debug for Administrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Administrator")
    }
}
