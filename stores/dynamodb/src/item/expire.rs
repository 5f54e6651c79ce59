//! The time to live of a table, for an emulator that has none.

use super::{GRACE, decode, names};
use crate::{engine::Engine, error::CallFailure, guards::REMOVED_UNCHANGED};
use idempotent_core::{RecordId, RecordState, clock::Timestamp};

/// Removes expired records of the store, and returns their number.
///
/// # Panics
/// If `gone` would remove a live record, or would not remove an expired one in time.
pub(crate) async fn expire(engine: &Engine) -> Result<u64, CallFailure> {
    let now = engine.now(&RecordId::from_bytes([0; 32])).await?.earliest;
    let (mut removed, mut after): (u64, Option<Vec<u8>>) = (0, None);
    loop {
        let part = engine.table.scan(&[names::ID], (after.as_deref(), None), None).await?;
        let key = |item: &crate::table::Item| {
            item.get(names::ID).and_then(|id| id.as_b().ok()).map(|id| id.as_ref().to_vec())
        };
        for key in part.items.iter().filter_map(key) {
            if engine.keys.record_of(&key).is_some() && expire_one(engine, &key, now).await? {
                removed += 1;
            }
        }
        after = part.next.as_ref().and_then(key);
        if after.is_none() {
            return Ok(removed);
        }
    }
}

async fn expire_one(engine: &Engine, key: &[u8], now: Timestamp) -> Result<bool, CallFailure> {
    let Some(item) = engine.table.get(key).await? else { return Ok(false) };
    let stored = decode(&item)?;
    let gone = item.get(names::GONE).and_then(|gone| gone.as_n().ok());
    let gone = gone.and_then(|gone| gone.parse::<u64>().ok()).map(|seconds| seconds * 1_000);
    let expired = stored.record.is_expired(now);
    assert!(gone.is_none_or(|gone| gone > now.as_millis()) || expired, "live: {stored:?}");
    let lease = match stored.record.state {
        RecordState::InFlight => stored.record.lease,
        RecordState::Held | RecordState::Completed(_) => std::time::Duration::ZERO,
    };
    let latest = stored.record.expires_at.max(stored.record.lease_until);
    // A lease that was abandoned may have ended when it would have expired otherwise.
    let latest = latest.max(now).after(lease).after(GRACE).as_millis() + 3_600_000 + 1_000;
    let in_time = gone.is_some_and(|gone| gone <= latest);
    assert!(in_time || !expired, "never removed: {gone:?} {stored:?}");
    if !expired {
        return Ok(false);
    }
    let values = vec![(":seen", stored.tag.value())];
    let expression = engine.expression(None, &[REMOVED_UNCHANGED], values);
    Ok(engine.table.delete(key, expression).await?.is_ok())
}
