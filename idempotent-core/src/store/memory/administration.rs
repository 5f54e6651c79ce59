//! Lists of records, and decisions of operators.

use async_trait::async_trait;

use super::{MemoryStore, NAME, SHARDS_A_TURN};
use crate::{
    error::StoreError,
    history::Kind,
    protocol::{
        AuditEntry, AuditPage, InvalidPosition, ListedRecord, ListedState, PagePosition,
        RecordCount, RecordFilter, RecordPage, Removal, Replacement, StoreFacts,
    },
    record::{Record, RecordState},
    record_id::RecordId,
    short_text::ShortText,
    store::Administration,
    transition,
};

impl MemoryStore {
    /// All records that are wanted, in no order.
    async fn wanted(&self, wanted: impl Fn(&RecordId, &Record) -> bool) -> Vec<ListedRecord> {
        let mut found = Vec::new();
        for shard in 0..self.shards.count() {
            found.extend(self.shards.wanted(shard, &wanted));
            if shard % SHARDS_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        found
    }
}

fn is_open(record: &Record) -> bool {
    match record.state {
        RecordState::InFlight | RecordState::Held => true,
        RecordState::Completed(_) => false,
    }
}

fn invalid(operation: &'static str) -> impl Fn(InvalidPosition) -> StoreError {
    move |error| StoreError::permanent(NAME, operation, error)
}

#[async_trait]
impl Administration for MemoryStore {
    async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::number_and_id).transpose().map_err(invalid("list"))?;
        let place = |id: &RecordId, record: &Record| (record.first_seen.as_millis(), *id);
        let at = self.clock.now();
        let mut found = self
            .wanted(|id, record| {
                is_open(record)
                    && filter.matches(record, at)
                    && after.is_none_or(|after| place(id, record) > after)
            })
            .await;
        found.sort_by_key(|listed| place(&listed.id, &listed.record));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_last = found.len() <= limit;
        found.truncate(limit);
        let next = found.last().filter(|_| !is_last).map(|last| {
            PagePosition::after_number_and_id(last.record.first_seen.as_millis(), &last.id)
        });
        Ok(RecordPage::new(found, at, next))
    }

    /// In the order of the shards, and within each in that of the ids.
    async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::number_and_id).transpose().map_err(invalid("scan"))?;
        let (shard, after) = after.map_or((0, None), |(shard, id)| (shard, Some(id)));
        let (at, count) = (self.clock.now(), self.shards.count());
        let mut shard = usize::try_from(shard).unwrap_or(count);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut found, mut after) = (Vec::new(), after);
        while shard < count && found.len() < limit {
            let mut these = self.shards.wanted(shard, |id, record| {
                filter.matches(record, at) && after.is_none_or(|after| *id > after)
            });
            these.sort_by_key(|listed| listed.id);
            these.truncate(limit - found.len());
            found.append(&mut these);
            if found.len() < limit {
                (shard, after) = (shard + 1, None);
                if shard % SHARDS_A_TURN == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        let last = found.last().filter(|_| shard < count).map(|last| last.id);
        let number = u64::try_from(shard).unwrap_or(u64::MAX);
        let next = last.map(|id| PagePosition::after_number_and_id(number, &id));
        Ok(RecordPage::new(found, at, next))
    }

    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError> {
        let mut found = self.wanted(|id, _| (first..=last).contains(&id)).await;
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        Ok(self.step(id, |record, now| {
            let (change, removed) = transition::remove(record, removal, now);
            if let Some(record) = record.filter(|_| removed) {
                self.audit_log.add(audit.of_record(record, now), now);
            }
            (change, removed)
        }))
    }

    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError> {
        Ok(self.step(id, |record, _| transition::replace(record, replacement)))
    }

    async fn append_history(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError> {
        self.step(id, |record, now| (transition::append_history(record, kind, now), ()));
        Ok(())
    }

    async fn count(&self) -> Result<RecordCount, StoreError> {
        let records = u64::try_from(self.shards.records()).unwrap_or(u64::MAX);
        let at = self.clock.now();
        let open = self.wanted(|_, record| is_open(record)).await;
        let is_held = RecordFilter::of_state(ListedState::Held);
        let held = open.iter().filter(|listed| is_held.matches(&listed.record, at));
        let oldest_held = held.clone().map(|listed| listed.record.first_seen).min();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let held = held.count();
        let in_flight = number(open.len() - held);
        let held = number(held);
        Ok(RecordCount { records, is_exact: true, held, in_flight, oldest_held, at })
    }

    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        self.audit_log.page(after, limit).map_err(invalid("read the audit log"))
    }

    async fn measure(&self) -> Result<StoreFacts, StoreError> {
        let server = ShortText::truncated("memory of the process");
        Ok(StoreFacts::new(self.clock.now(), server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fingerprint::Fingerprint, lease::OwnerToken, protocol::Claim, store::Store as _};

    /// A store with this many records in one shard.
    async fn store(records: u8) -> MemoryStore {
        let store = MemoryStore::new().max_records(100);
        for number in 0..records {
            let fingerprint = Fingerprint::from_bytes([1; Fingerprint::BYTES]);
            let claim = Claim::new(fingerprint, OwnerToken::from_bytes([number; 16]));
            store.claim(&RecordId::from_bytes([number; 32]), &claim).await.unwrap();
        }
        store
    }

    fn bytes(records: &[ListedRecord]) -> Vec<u8> {
        records.iter().map(|listed| listed.id.as_bytes()[0]).collect()
    }

    #[tokio::test]
    async fn each_record_is_on_one_page() {
        let (store, filter) = (store(20).await, RecordFilter::default());
        for limit in 1..=21 {
            let (mut found, mut after) = (Vec::new(), None);
            for _ in 0..=20 {
                let page = store.scan(&filter, after.as_ref(), limit).await.unwrap();
                assert!(page.records.len() <= usize::try_from(limit).unwrap(), "{page:?}");
                found.extend(bytes(&page.records));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, (0..20).collect::<Vec<_>>(), "pages of {limit}");
        }
    }

    #[tokio::test]
    async fn the_last_page_says_so() {
        let (store, filter) = (store(4).await, RecordFilter::default());
        for (limit, is_last) in [(3, false), (4, true), (5, true)] {
            let watched = store.watched(&filter, None, limit).await.unwrap();
            assert_eq!(watched.next.is_none(), is_last, "{watched:?}");
        }
        assert_eq!(store.scan(&filter, None, 5).await.unwrap().next, None);
    }

    #[tokio::test]
    async fn at_most_as_many_are_found_as_are_asked_for() {
        let store = store(4).await;
        let [first, last] = [1, 3].map(|number| RecordId::from_bytes([number; 32]));
        for (limit, found) in [(2, 2), (3, 3), (4, 3)] {
            assert_eq!(store.find(&first, &last, limit).await.unwrap().len(), found);
        }
    }
}
