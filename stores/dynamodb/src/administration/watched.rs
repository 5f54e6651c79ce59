//! The list of watched records, merged from the partitions of the index.

use std::collections::HashMap;

use futures_util::future::try_join_all;

use crate::{
    engine::Engine,
    error::CallFailure,
    item::{Item, decode_listed, names},
    table::Queried,
};
use idempotent_core::{
    RecordId,
    protocol::{ListedRecord, PagePosition, RecordFilter, RecordPage},
};

/// How many records a page reads at most.
pub(super) const READ: usize = 256;

/// The place of a record in the list: when it was first claimed, and its id.
pub(super) type Place = (u64, RecordId);

/// Returns a page of at most `limit` records.
pub(super) async fn page(
    engine: &Engine,
    filter: &RecordFilter,
    after: Option<Place>,
    limit: usize,
) -> Result<RecordPage, CallFailure> {
    let nowhere = RecordId::from_bytes([0; 32]);
    let now = engine.now(&nowhere).await?.at;
    let (mut page, mut next) = (RecordPage::new(Vec::new(), now, None), None);
    if limit == 0 {
        return Ok(page);
    }
    let mut places = next_places(engine, after, limit).await?;
    if places.len() > limit {
        places.truncate(limit);
        next = places.last().copied();
    }
    let keys = places.iter().map(|(_, id)| engine.keys.record(id)).collect();
    let items = engine.table.get_many(keys).await?;
    let mut items: HashMap<RecordId, Item> =
        items.into_iter().filter_map(|item| Some((id_of(engine, &item)?, item))).collect();
    for (_, id) in places {
        // The index may still have what is no more in the table.
        let Some(item) = items.remove(&id) else { continue };
        let Ok(stored) = decode_listed(&item) else {
            page.unreadable.push(id);
            continue;
        };
        if filter.is_too_young(stored.record.first_seen, now) {
            next = None;
            break;
        }
        if stored.watched && filter.matches(&stored.record, now) {
            page.records.push(ListedRecord::new(id, stored.record));
        }
    }
    page.next = next.map(|(number, id)| PagePosition::after_number_and_id(number, &id));
    Ok(page)
}

/// More than `limit` places, if there are more, in order.
async fn next_places(
    engine: &Engine,
    after: Option<Place>,
    limit: usize,
) -> Result<Vec<Place>, CallFailure> {
    let shards = engine.keys.shards().map(|shard| shard_places(engine, shard, after, limit));
    let mut places = try_join_all(shards).await?.concat();
    places.sort();
    Ok(places)
}

/// More than `limit` places of one partition, if there are more. Records of the same millisecond
/// have no order in the index, so all of them are read.
async fn shard_places(
    engine: &Engine,
    hash: String,
    after: Option<Place>,
    limit: usize,
) -> Result<Vec<Place>, CallFailure> {
    let (mut places, mut start): (Vec<Place>, _) = (Vec::new(), None);
    let most = i32::try_from(limit.saturating_add(1)).ok();
    let from = Some(after.map_or(0, |(first_seen, _)| first_seen));
    loop {
        let hash = hash.clone();
        let wanted = Queried { hash, from, latest_first: false, after: start, limit: most };
        let part = engine.table.query(wanted).await?;
        let read = part.items.iter().filter_map(|item| place_of(engine, item));
        places.extend(read.filter(|place| after.is_none_or(|after| *place > after)));
        let enough = match (places.get(limit), places.last()) {
            (Some((limit, _)), Some((last, _))) => last > limit,
            _ => false,
        };
        start = part.next;
        if enough || start.is_none() {
            return Ok(places);
        }
    }
}

fn place_of(engine: &Engine, item: &Item) -> Option<Place> {
    let first_seen = item.get(names::FIRST_SEEN)?.as_n().ok()?;
    Some((first_seen.parse().ok()?, id_of(engine, item)?))
}

pub(super) fn id_of(engine: &Engine, item: &Item) -> Option<RecordId> {
    engine.keys.record_of(item.get(names::ID)?.as_b().ok()?.as_ref())
}
