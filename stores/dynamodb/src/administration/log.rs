//! The log of operators' decisions.

use std::collections::HashMap;

use crate::{
    engine::Engine,
    error::CallFailure,
    item::{Item, bytes, names, number, read_log_entry, text},
    table::Queried,
};
use idempotent_core::{
    RecordId,
    protocol::{AuditPage, PagePosition},
};

/// Returns a page of entries, the latest first. Each place is the time of an entry and its number,
/// which has the form of a record's id.
pub(super) async fn page(
    engine: &Engine,
    after: Option<(u64, RecordId)>,
    limit: usize,
) -> Result<AuditPage, CallFailure> {
    if limit == 0 {
        return Ok(AuditPage::default());
    }
    let hash = engine.keys.log_shard();
    let after = after.map(|(at, place)| {
        Item::from([
            (names::ID.to_owned(), bytes(&engine.keys.log(&place))),
            (names::WATCHED.to_owned(), text(hash.clone())),
            (names::FIRST_SEEN.to_owned(), number(at)),
        ])
    });
    let limit = i32::try_from(limit).ok();
    let wanted = Queried { hash, from: None, latest_first: true, after, limit };
    let part = engine.table.query(wanted).await?;
    let place = |item: &Item| engine.keys.log_entry_of(item.get(names::ID)?.as_b().ok()?.as_ref());
    let places: Vec<RecordId> = part.items.iter().filter_map(place).collect();
    let keys = places.iter().map(|place| engine.keys.log(place)).collect();
    let items = engine.table.get_many(keys).await?;
    let mut items: HashMap<RecordId, Item> =
        items.into_iter().filter_map(|item| Some((place(&item)?, item))).collect();
    let entries = places.iter().filter_map(|place| items.remove(place));
    let entries = entries.filter_map(|item| read_log_entry(&item).ok()).collect();
    let next = part.next.as_ref().and_then(|item| {
        let at = item.get(names::FIRST_SEEN)?.as_n().ok()?.parse().ok()?;
        Some(PagePosition::after_number_and_id(at, &place(item)?))
    });
    Ok(AuditPage::new(entries, next))
}
