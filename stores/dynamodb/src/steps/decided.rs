//! Writes that were decided by a record that was read.

use std::time::Duration;

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::DECIDED_UNCHANGED,
    item::{Contents, Stored, Tag, decode, encode},
    service_time::{Now, TOLERANCE},
};
use idempotent_core::{Record, RecordId};

use super::blobs;

/// What was found instead of the record for which a write was decided: it has to be decided anew.
pub(super) type Changed = Option<Stored>;

/// Replaces a record by another one, unless it was changed since it was read. Contents that the new
/// record has no more are removed afterwards.
///
/// Between the read and the write another process may change the record; its tag prevents that the
/// write passes (`conditions`).
pub(super) async fn replace(
    engine: &Engine,
    id: &RecordId,
    seen: &Stored,
    record: Record,
    contents: Contents,
) -> Result<Result<(), Changed>, CallFailure> {
    let (tag, noted, watched) = (Tag::random(), seen.noted, seen.watched);
    let next = Stored { record, contents, tag, noted, watched };
    let expression =
        engine.expression(None, &[DECIDED_UNCHANGED], vec![(":seen", seen.tag.value())]);
    let refused = match engine.table.put(encode(&engine.keys, id, &next), expression).await? {
        Ok(_) => None,
        // An earlier request of this call took effect.
        Err(refused) if refused.item.as_ref().is_some_and(|item| tag.is_of(item)) => None,
        Err(refused) => Some(refused),
    };
    match refused {
        Some(refused) => Ok(Err(refused.item.as_ref().map(decode).transpose()?)),
        None => {
            let left: Vec<_> = next.contents.blobs().collect();
            let dropped = seen.contents.blobs().filter(|blob| !left.contains(blob));
            blobs::remove(engine, id, dropped).await;
            Ok(Ok(()))
        }
    }
}

/// A record as the state machine sees it: its lease may end later than its length from now, because
/// it was written at the latest time that it could be.
pub(super) fn as_seen(record: &Record, now: Now) -> Record {
    let longest = now.earliest.after(record.lease);
    let tolerated = now.latest.after(record.lease).after(TOLERANCE);
    let mut seen = record.clone();
    if seen.lease_until > longest && seen.lease_until <= tolerated {
        seen.lease_until = longest;
    }
    seen
}

/// The record with a lease that is granted now.
pub(super) fn with_lease(mut record: Record, lease: Duration, now: Now) -> Record {
    record.lease_until = now.latest.after(lease);
    record
}
