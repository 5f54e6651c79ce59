//! Lists of records, and decisions of operators.

use async_trait::async_trait;

use crate::{
    RedisStore,
    claim::step,
    encoding::log_entry,
    engine::{Beside, Engine},
    error::{CallFailure, NAME},
    lua::Arg,
    net::{ConnectionRole, Message, SendAgain},
};
use idempotent_core::{
    Lease, RecordId, StoreError,
    history::Kind,
    protocol::{
        AuditEntry, AuditPage, Contents, Fence, InvalidPosition, ListedRecord, ListedState,
        PagePosition, RecordCount, RecordFilter, RecordPage, Removal, Replacement, StoreFacts,
    },
    store::Administration,
};

mod facts;
mod keyspace;
mod log;
mod masters;
mod merged;
mod records;
mod scan;
mod search;
mod watched;

/// How many records a count reads at a time.
const COUNTED: usize = 1_000;

fn of(operation: &'static str) -> impl Fn(CallFailure) -> StoreError {
    move |failure| failure.into_error(operation)
}

fn invalid(operation: &'static str) -> impl Fn(InvalidPosition) -> StoreError {
    move |error| StoreError::permanent(NAME, operation, error)
}

fn limited(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// A list of a server that has become a replica fails with a transient error, as a lookup does.
///
/// In a cluster, a call that lists watched records or reads the log asks each slot for its part, in
/// a few large writes, and fails if one master does not respond. A prefix with a hash tag has one
/// list and one log.
///
/// An entry of the watch list stays if its record expires, or ends while its slot is moving to
/// another node. A list that reads such an entry drops it, but not within an hour of the first
/// claim.
#[async_trait]
impl Administration for RedisStore {
    /// Reads at most 1,000 watched records for each page, so a page may have fewer records than
    /// `limit` although it is not the last one. Expired records are left out. A record that was
    /// claimed while its slot was moving to another node of a cluster may be on two pages. One that
    /// became watched while its slot was moving may count as younger than it is, until a list
    /// without [`older_than`](RecordFilter::older_than) has met it.
    async fn watched(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(PagePosition::number_and_id).transpose().map_err(invalid("list"))?;
        let page = watched::page(&self.engine, filter, after, limited(limit)).await;
        let watched::Page { records, unreadable, at, next } = page.map_err(of("list"))?;
        let next = next.map(|(number, id)| PagePosition::after_number_and_id(number, &id));
        let mut page = RecordPage::new(records, at, next);
        page.unreadable = unreadable;
        Ok(page)
    }

    /// Reads about 1,000 keys of the database for each page, including keys of other applications,
    /// and in a cluster one node after the other, and at the end those once more that are
    /// importing a slot. If servers have been added, have failed over or have exchanged slots
    /// since the previous page, the scan starts again. If a server restarts between two pages, some
    /// of its records may be missed. The [unreadable](RecordPage::unreadable) records include any
    /// value under a key of the store that is not a record, and the filter excludes none of them.
    async fn scan(
        &self,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<RecordPage, StoreError> {
        let after = after.map(scan::ScanPosition::parse).transpose().map_err(invalid("scan"))?;
        scan::page(&self.engine, filter, after, limited(limit)).await.map_err(of("scan"))
    }

    /// Reads one record if the range is one id. Otherwise reads the keys of all servers until
    /// `limit` records are found, which takes a few seconds for a million keys.
    async fn find(
        &self,
        first: &RecordId,
        last: &RecordId,
        limit: u32,
    ) -> Result<Vec<ListedRecord>, StoreError> {
        let found = search::find(&self.engine, (first, last), limited(limit)).await;
        found.map_err(of("find"))
    }

    /// Fails with a transient error while the record's slot moves to another node of a cluster.
    async fn remove(
        &self,
        id: &RecordId,
        removal: &Removal,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let (seen, entry) = (Lease { id: *id, owner: removal.seen }, log_entry(audit));
        let mut args = vec![Arg::Number(removal.live.into())];
        args.extend(entry.iter().map(|text| Arg::Bytes(text.as_bytes())));
        let record = (&seen, Beside::ListAndLog);
        let removed = step(&self.engine, &self.engine.scripts.remove, record, &args).await;
        removed.map(|fence| fence == Fence::Passed).map_err(of("remove"))
    }

    async fn replace(&self, id: &RecordId, replacement: &Replacement) -> Result<bool, StoreError> {
        let Replacement { seen, was, becomes, .. } = replacement;
        let seen = Lease { id: *id, owner: *seen };
        let parts = |Contents { recording, steps, input, .. }| [recording, steps, input];
        let (was, becomes) = (parts(was.clone()), parts(becomes.clone()));
        let args: Vec<_> = was.iter().chain(&becomes).map(|part| Arg::Bytes(part)).collect();
        let record = (&seen, Beside::Nothing);
        let replaced = step(&self.engine, &self.engine.scripts.replace, record, &args).await;
        replaced.map(|fence| fence == Fence::Passed).map_err(of("replace"))
    }

    async fn append_history(&self, id: &RecordId, kind: Kind) -> Result<(), StoreError> {
        let letter = [kind.letter()];
        let how = (ConnectionRole::Requests, SendAgain::Never);
        let (script, record) = (&self.engine.scripts.append_history, (id, Beside::Nothing));
        let appended = self.engine.call(how, script, record, &[Arg::Bytes(&letter)]).await;
        appended.map(drop).map_err(of("append to the history"))
    }

    async fn measure(&self) -> Result<StoreFacts, StoreError> {
        facts::facts(&self.engine).await.map_err(of("measure"))
    }

    /// The number of all records is the number of keys of the database, including keys of other
    /// applications. Reads all watched records, so the time depends on their number. Of these, the
    /// ones that cannot be read are not counted.
    async fn count(&self) -> Result<RecordCount, StoreError> {
        count(&self.engine).await.map_err(of("count"))
    }

    /// The log is a stream beside the records, which the store never trims: use `XTRIM` to limit
    /// it. An entry takes about 220 bytes, or more with a long reason. Entries that cannot be read
    /// are left out.
    async fn audit(
        &self,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        let operation = "read the audit log";
        let after = after.map(log::Place::parse).transpose().map_err(invalid(operation))?;
        log::page(&self.engine, after, limited(limit)).await.map_err(of(operation))
    }
}

async fn count(engine: &Engine) -> Result<RecordCount, CallFailure> {
    let mut count = RecordCount::none(masters::now(engine).await?);
    for node in masters::masters(engine)? {
        let size = redis::cmd("DBSIZE");
        let message = Message::Command(&size);
        let size = engine.router.send_to(&node, ConnectionRole::Lists, message).await?;
        let size: u64 = redis::from_redis_value(size).map_err(CallFailure::unexpected_reply)?;
        count.records = count.records.saturating_add(size);
    }
    let (filter, is_held) = (RecordFilter::default(), RecordFilter::of_state(ListedState::Held));
    let mut after = None;
    loop {
        let page = watched::page(engine, &filter, after, COUNTED).await?;
        for ListedRecord { record, .. } in &page.records {
            if is_held.matches(record, page.at) {
                count.held += 1;
                let oldest = count
                    .oldest_held
                    .map_or(record.first_seen, |oldest| oldest.min(record.first_seen));
                count.oldest_held = Some(oldest);
            } else {
                count.in_flight += 1;
            }
        }
        after = page.next;
        // What has been claimed since then is not counted: otherwise the count might never end.
        if after.is_none_or(|(first_seen, _)| first_seen > count.at.as_millis()) {
            return Ok(count);
        }
    }
}
