//! The time to live of a table, for an emulator that has none.

use super::decided::replace;
use crate::{
    engine::Engine,
    error::CallFailure,
    guards::REMOVED_UNCHANGED,
    item::{Item, decode, names},
};
use idempotent_core::{
    RecordId,
    clock::Timestamp,
    transition::{Change, Event, transition},
};

/// How long after a record has expired the table keeps it at most, but for the time to live being
/// late: an hour, and as long as the lease of an abandoned attempt would have lasted otherwise.
const LATEST: u64 = 2 * 3_600_000 + 1_000;

/// Removes up to `limit` expired records of the store, and returns their number.
///
/// # Panics
/// If `gone` would remove a live record, or would not remove an expired one in time.
pub(crate) async fn expire(engine: &Engine, limit: u32) -> Result<u64, CallFailure> {
    let now = engine.now(&RecordId::from_bytes([0; 32])).await?.at;
    let (mut removed, mut after): (u64, Option<Vec<u8>>) = (0, None);
    loop {
        let part = engine.table.scan(&[names::ID], (after.as_deref(), None)).await?;
        for id in part.items.iter().filter_map(key_of).filter_map(|key| engine.keys.record_of(&key))
        {
            if removed == u64::from(limit) {
                return Ok(removed);
            }
            removed += u64::from(expire_one(engine, &id, now).await?);
        }
        after = part.next.as_ref().and_then(key_of);
        if after.is_none() {
            return Ok(removed);
        }
    }
}

fn key_of(item: &Item) -> Option<Vec<u8>> {
    Some(item.get(names::ID)?.as_b().ok()?.as_ref().to_vec())
}

async fn expire_one(engine: &Engine, id: &RecordId, now: Timestamp) -> Result<bool, CallFailure> {
    let key = engine.keys.record(id);
    let Some(item) = engine.table.get(&key).await? else { return Ok(false) };
    let stored = decode(&item)?;
    let gone = item.get(names::GONE).and_then(|gone| gone.as_n().ok());
    let gone = gone.and_then(|gone| gone.parse::<u64>().ok()).map(|seconds| seconds * 1_000);
    let expired = stored.record.is_expired(now);
    assert!(gone.is_none_or(|gone| gone > now.as_millis()) || expired, "live: {stored:?}");
    let latest = stored.record.expires_at.max(now).after(stored.record.lease).as_millis();
    let in_time = gone.is_some_and(|gone| gone <= latest + LATEST);
    assert!(in_time || !expired, "never removed: {gone:?} {stored:?}");
    match transition(Some(&stored.record), &Event::Purge, now).0 {
        Change::Keep => Ok(false),
        // The clock was set back. Only a claim of the key would find that, but a purge of the other
        // stores does too.
        Change::Put(record) => {
            let contents = stored.contents.clone();
            replace(engine, id, &stored, record, contents).await?.ok();
            Ok(false)
        }
        Change::Remove => {
            let values = vec![(":seen", stored.tag.value())];
            let expression = engine.expression(None, &[REMOVED_UNCHANGED], values);
            Ok(engine.table.delete(&key, expression).await?.is_ok())
        }
    }
}
