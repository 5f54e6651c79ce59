//! The erasure of a principal.

use super::administrator::Administrator;
use crate::{
    error::StoreError,
    protocol::{Actor, AuditAction, AuditEntry, ListedRecord, PagePosition, RecordFilter, Removal},
    record_id::RecordId,
    scope::Principal,
};

/// How many records an erasure reads at a time.
const ERASED_AT_ONCE: u32 = 200;

/// The outcome for some of the records of a principal. The result of [`Administrator::erase`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasedPage {
    /// How many records were removed.
    pub erased: u64,
    /// The records that were not removed and still exist: they are held or in flight, or another
    /// attempt has claimed their keys meanwhile.
    pub left: Vec<ListedRecord>,
    /// The records that the store cannot read, and that are or may be the principal's: see
    /// [`RecordPage::unreadable`](crate::protocol::RecordPage::unreadable). They were not removed.
    pub unreadable: Vec<RecordId>,
    /// Where the next call continues. `None` if all records were read.
    pub next: Option<PagePosition>,
}

/// What has become of a record that was to be removed.
enum Removed {
    /// The call has removed it.
    Now,
    /// It was gone.
    Before,
    /// It is still there.
    Not(Box<ListedRecord>),
}

impl Administrator {
    /// Removes up to 200 records of these [principals](Self::principals), each in a call of its
    /// own. Call it again with [`ErasedPage::next`] as `after` until that is `None`: all calls
    /// together read the whole store. Without principals, nothing is removed.
    ///
    /// Records that are held or in flight stay and are returned, unless `live` is true. If the
    /// record of a running attempt is removed, the attempt stores its outcome in a new record, as
    /// after any loss of a record: erase that one later.
    ///
    /// A record that is claimed between the first and the last of these calls may be missed. The
    /// log gets an entry for each removed record, with its id. As every entry, it has neither the
    /// principal nor the reference of the record.
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
        page.unreadable = found.unreadable;
        for ListedRecord { id, record } in found.records {
            let removal = Removal { seen: record.owner, live };
            let about = AuditEntry::about(AuditAction::Erase, id, &record, found.at, actor.clone());
            match self.remove_or_read(&id, &removal, &about).await {
                Ok(Removed::Now) => page.erased += 1,
                Ok(Removed::Before) => {}
                Ok(Removed::Not(listed)) => page.left.push(*listed),
                Err(error) if error.is_unreadable() => page.unreadable.push(id),
                Err(error) => return Err(error),
            }
        }
        page.next = found.next;
        Ok(page)
    }

    async fn remove_or_read(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<Removed, StoreError> {
        if self.call("erase", |store| store.remove(id, removal, audit)).await? {
            return Ok(Removed::Now);
        }
        let mut found = self.call("erase", |store| store.find(id, id, 1)).await?;
        Ok(found.pop().map_or(Removed::Before, |listed| Removed::Not(listed.into())))
    }
}
