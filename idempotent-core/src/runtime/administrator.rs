//! The calls for operators.

use std::sync::Arc;

use super::parts::RuntimeParts;
use crate::{
    error::StoreError,
    lease::OwnerToken,
    protocol::{
        Actor, AuditAction, AuditEntry, AuditPage, Audited, AuditedState, ListedRecord,
        PagePosition, RecordCount, RecordFilter, RecordPage, Removal, Resolution, ResolveOutcome,
        Snapshot, StoreFacts,
    },
    record_id::{RecordId, RecordIdError},
    recording::EncodedRecording,
    scope::{Principal, ScopeId},
    store::Administration,
};

/// The time limit of a call that may read the whole store, as a multiple of the time limit of a
/// call that a client waits for.
const TIMEOUTS: u32 = 6;
/// How many records whose ids begin with the same digits are returned at most.
const MAX_FOUND: u32 = 10;
/// How many entries of the log are read at a time, and how often, for one record.
const AUDITED_AT_ONCE: u32 = 1_000;
const AUDIT_PAGES: u32 = 10;

/// Lists the records of a store, and executes the decisions of operators.
/// [`Runtime::administrator`](super::Runtime::administrator) returns it.
///
/// Each decision names who made it and why. The store keeps that in a log that outlives the record.
/// No method checks who calls it: offer them only to people whom the application has authorized.
///
/// # Errors
/// Every method fails if the store fails. Except for [`look_up`](Self::look_up) and
/// [`resolve`](Self::resolve), it fails with an [unsupported](StoreError::is_unsupported) error if
/// the store has no [`Administration`](crate::store::Administration).
///
/// Each call to the store takes at most six times the
/// [`store_timeout`](super::RuntimeOptions::store_timeout), and for these two methods at most the
/// `store_timeout` itself.
///
/// # Cancel safety
/// A list, a search or a count that is dropped changes nothing. A decision that is dropped may or
/// may not have taken effect, and the log has an entry if it has. It may be repeated.
#[derive(Clone)]
pub struct Administrator {
    pub(super) parts: Arc<RuntimeParts>,
}

/// The records whose ids begin with some digits. The result of [`Administrator::find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRecord {
    /// There is no such record.
    Absent,
    /// There is exactly one.
    One(Box<ListedRecord>),
    /// There are several, of which this contains up to ten. More digits tell them apart.
    Ambiguous(Vec<ListedRecord>),
}

impl Administrator {
    pub(super) fn new(parts: Arc<RuntimeParts>) -> Self {
        Self { parts }
    }

    /// Returns the digests under which records may have the principal of a scope, for
    /// [`RecordFilter::principals`] and [`erase`](Self::erase): signed with each of the
    /// [`fingerprint_keys`](super::RuntimeOptions::fingerprint_keys), and unsigned.
    #[must_use]
    pub fn principals(&self, scope: &ScopeId) -> Vec<Principal> {
        self.parts.options.fingerprint_keys.all_signed(scope.principal())
    }

    /// Returns a page of up to `limit` of the records that may need an operator, the oldest first:
    /// those that are held, those in flight that would be held if they were abandoned, and those in
    /// flight whose lease was renewed. The time that it takes depends on the number of these
    /// records, not on that of all records. See [`Administration::watched`].
    ///
    /// For the next page, pass [`RecordPage::next`] as `after`.
    pub async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        self.call("list", |store| store.watched(filter, after, limit)).await
    }

    /// Returns a page of up to `limit` of all records, in no particular order. All pages together
    /// read the whole store; a page may be empty although it is not the last one. See
    /// [`Administration::scan`].
    pub async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        self.call("scan", |store| store.scan(filter, after, limit)).await
    }

    /// Returns the record whose id begins with these hexadecimal digits: 1 to 64 of them, such as
    /// the 8 that log lines have.
    ///
    /// # Errors
    /// The outer result fails if the text is not the beginning of an id. The inner one fails with
    /// an [unreadable](StoreError::is_unreadable) error that names the record if one of those that
    /// begin with the digits cannot be read.
    pub async fn find(
        &self,
        digits: &str,
    ) -> Result<Result<FoundRecord, StoreError>, RecordIdError> {
        let (first, last) = RecordId::range(digits)?;
        let found = self.call("find", |store| store.find(&first, &last, MAX_FOUND)).await;
        Ok(found.map(|mut found| match found.len() {
            0 => FoundRecord::Absent,
            1 => found.pop().map_or(FoundRecord::Absent, |one| FoundRecord::One(one.into())),
            _ => FoundRecord::Ambiguous(found),
        }))
    }

    /// Reads a record with its recording, steps and input, which the runtime opens if they are
    /// sealed. Returns `None` if it is absent or has expired.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.parts.store.call("look up", |store| store.look_up(id)).await
    }

    /// Resolves a held key, if the attempt that the operator saw still owns it. After an error the
    /// call may be repeated; if it had taken effect, the outcome is then a conflict.
    ///
    /// A store without [`Administration`] also resolves keys, but keeps no log.
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
        let outcome =
            store.call("resolve", |store| store.resolve(id, seen, resolution, &audit)).await?;
        self.parts.waiters.wake(id);
        Ok(outcome)
    }

    /// Removes a completed record that was seen with this owner: the next request with its key runs
    /// the operation again. Returns whether the record was removed. It stays if another attempt
    /// owns it by now, or if it is held or in flight.
    pub async fn forget(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let Some(Snapshot { record, at }) = self.look_up(id).await? else { return Ok(false) };
        let removal = Removal::of_completed(*seen);
        let about = AuditEntry::about(AuditAction::Forget, *id, &record, at, actor.clone());
        self.call("forget", |store| store.remove(id, &removal, &about)).await
    }

    /// Counts the records: the [watched](Self::watched) ones exactly, and all of them as exactly as
    /// is possible without reading the whole store.
    pub async fn count(&self) -> Result<RecordCount, StoreError> {
        self.call("count", |store| store.count()).await
    }

    /// Returns a page of up to `limit` entries of the log of operators' decisions, the latest
    /// first.
    pub async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        self.call("read the audit log", |store| store.audit(after, limit)).await
    }

    /// Returns the entries of the log about one record, the latest first, among the latest 10,000
    /// entries of the log.
    pub async fn audit_of(&self, id: &RecordId) -> Result<Vec<Audited>, StoreError> {
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..AUDIT_PAGES {
            let page = self.audit(after.as_ref(), AUDITED_AT_ONCE).await?;
            found.extend(page.entries.into_iter().filter(|audited| audited.entry.id == *id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// Tells about the store: its clock, its size, and what somebody should look at. See
    /// [`Administration::measure`].
    pub async fn measure(&self) -> Result<StoreFacts, StoreError> {
        self.call("measure", |store| store.measure()).await
    }

    pub(super) async fn call<'a, T, C>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce(&'a dyn Administration) -> C,
    ) -> Result<T, StoreError>
    where
        C: Future<Output = Result<T, StoreError>> + Unpin,
    {
        let store = &self.parts.store;
        let administration = store.store().administration();
        let administration =
            administration.ok_or_else(|| StoreError::unsupported("store", operation))?;
        let limit = store.timeout().saturating_mul(TIMEOUTS);
        store.limit_to(operation, limit, call(administration)).await
    }
}

impl std::fmt::Debug for Administrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Administrator")
    }
}
