//! Lists that read the whole table.

use crate::{
    engine::Engine,
    error::CallFailure,
    item::{Item, decode_listed, names},
};
use idempotent_core::{
    RecordId,
    protocol::{InvalidPosition, ListedRecord, PagePosition, RecordFilter, RecordPage},
};

use super::watched::id_of;

/// How a position in a scan begins.
const MARK: &str = "after";

/// The key after which a page begins.
pub(super) fn position(text: &PagePosition) -> Result<Vec<u8>, InvalidPosition> {
    let digits = text.as_str().strip_prefix(MARK).ok_or(InvalidPosition)?;
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return Err(InvalidPosition);
    }
    let byte = |pair: &[u8; 2]| {
        let pair = str::from_utf8(pair).map_err(|_| InvalidPosition)?;
        u8::from_str_radix(pair, 16).map_err(|_| InvalidPosition)
    };
    pairs.iter().map(byte).collect()
}

fn after(item: &Item) -> Option<PagePosition> {
    let key = item.get(names::ID)?.as_b().ok()?;
    let digits: String = key.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{MARK}{digits}").parse().ok()
}

/// Returns the records among the next `limit` items.
pub(super) async fn page(
    engine: &Engine,
    filter: &RecordFilter,
    after_key: Option<Vec<u8>>,
    limit: usize,
) -> Result<RecordPage, CallFailure> {
    let now = engine.now(&RecordId::from_bytes([0; 32])).await?.at;
    let mut page = RecordPage::new(Vec::new(), now, None);
    if limit == 0 {
        return Ok(page);
    }
    let most = i32::try_from(limit).ok();
    let part = engine.table.scan(names::LISTED, (after_key.as_deref(), most)).await?;
    for item in &part.items {
        let Some(id) = id_of(engine, item) else { continue };
        match decode_listed(item) {
            Ok(stored) if filter.matches(&stored.record, now) => {
                page.records.push(ListedRecord::new(id, stored.record));
            }
            Ok(_) => {}
            Err(_) => page.unreadable.push(id),
        }
    }
    page.next = part.next.as_ref().and_then(after);
    Ok(page)
}

/// Returns up to `limit` records whose ids are in a range.
pub(super) async fn find(
    engine: &Engine,
    (first, last): (&RecordId, &RecordId),
    limit: usize,
) -> Result<Vec<ListedRecord>, CallFailure> {
    let mut ids =
        if first == last { vec![*first] } else { ids_in(engine, (first, last), limit).await? };
    ids.sort();
    ids.truncate(limit);
    let keys = ids.iter().map(|id| engine.keys.record(id)).collect();
    let mut records = Vec::new();
    for item in engine.table.get_many(keys).await? {
        let Some(id) = id_of(engine, &item) else { continue };
        let stored = decode_listed(&item).map_err(|_| CallFailure::UnreadableRecord(id))?;
        records.push(ListedRecord::new(id, stored.record));
    }
    records.sort_by_key(|listed| listed.id);
    Ok(records)
}

async fn ids_in(
    engine: &Engine,
    (first, last): (&RecordId, &RecordId),
    limit: usize,
) -> Result<Vec<RecordId>, CallFailure> {
    let (mut ids, mut start): (Vec<RecordId>, Option<Vec<u8>>) = (Vec::new(), None);
    loop {
        let from = (start.as_deref(), None);
        let part = engine.table.scan(&[names::ID], from).await?;
        let read = part.items.iter().filter_map(|item| id_of(engine, item));
        ids.extend(read.filter(|id| first <= id && id <= last));
        start = part
            .next
            .as_ref()
            .and_then(|item| Some(item.get(names::ID)?.as_b().ok()?.as_ref().to_vec()));
        if ids.len() >= limit || start.is_none() {
            return Ok(ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::bytes;

    #[test]
    fn a_position_is_written_and_read() {
        let key = vec![0, 0xab, 7];
        let item = Item::from([(names::ID.to_owned(), bytes(&key))]);
        assert_eq!(position(&after(&item).unwrap()), Ok(key));
        for wrong in ["nowhere", "after", "after0", "afterxy", "7-00"] {
            let wrong = wrong.parse().unwrap();
            assert_eq!(position(&wrong), Err(InvalidPosition), "{wrong}");
        }
    }
}
