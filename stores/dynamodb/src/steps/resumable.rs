//! The search for operations that can be resumed from their inputs.

use futures_util::future::try_join_all;

use crate::{
    engine::Engine,
    error::CallFailure,
    item::{decode, names},
    table::Queried,
};
use bytes::Bytes;
use idempotent_core::{RecordId, ShortText, protocol::ResumablePage};

/// How many records one page reads.
const READ: usize = 256;

/// Reads the next watched records, in the order of their ids.
pub(crate) async fn resumable(
    engine: &Engine,
    operation: &ShortText,
    after: Option<&RecordId>,
    limit: u32,
) -> Result<ResumablePage, CallFailure> {
    let shards = engine.keys.shards().map(|shard| ids_of(engine, shard));
    let mut ids = try_join_all(shards).await?.concat();
    ids.retain(|id| after.is_none_or(|after| id > after));
    ids.sort();
    let is_last = ids.len() <= READ;
    ids.truncate(READ);
    let keys = ids.iter().map(|id| engine.keys.record(id)).collect();
    let items = engine.table.get_many(keys).await?;
    let mut page = ResumablePage::default();
    if let Some(first) = ids.first() {
        let now = engine.now(first).await?;
        for item in &items {
            // A record that cannot be read is not resumed.
            let (Some(id), Ok(stored)) = (id_of(engine, item), decode(item)) else { continue };
            let mut record = stored.record;
            if stored.contents.input.is_some() {
                record.notes.input = Bytes::from_static(b"its content does not matter");
            }
            if record.operation == *operation && record.is_resumable(now.past) {
                page.ids.push(id);
            }
        }
    }
    page.ids.sort();
    page.next = ids.last().copied().filter(|_| !is_last);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if page.ids.len() > limit {
        page.ids.truncate(limit);
        page.next = page.ids.last().copied();
    }
    Ok(page)
}

/// The ids of the records in one partition of the index.
async fn ids_of(engine: &Engine, hash: String) -> Result<Vec<RecordId>, CallFailure> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let wanted =
            Queried { hash: hash.clone(), from: None, latest_first: false, after, limit: None };
        let part = engine.table.query(wanted).await?;
        ids.extend(part.items.iter().filter_map(|item| id_of(engine, item)));
        after = part.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

fn id_of(engine: &Engine, item: &crate::item::Item) -> Option<RecordId> {
    engine.keys.record_of(item.get(names::ID)?.as_b().ok()?.as_ref())
}
