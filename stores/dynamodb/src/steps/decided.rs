//! Writes that were decided by a record that was read.

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::DECIDED_UNCHANGED,
    item::{Contents, Stored, Tag, decode, encode},
    service_time::Now,
};
use idempotent_core::{Record, RecordId, clock::Timestamp};

use super::blobs;

/// How often a step is decided anew because other processes have changed the record.
pub(super) const DECISIONS: usize = 32;

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

/// A record as it is judged by what is surely past. Its lease then seems to last longer than its
/// length. That counts as set back only if it also lasts too long from now.
pub(super) fn judged(record: &Record, now: Now) -> Record {
    let mut judged = record.clone();
    if record.with_shortened_lease(tolerated(now)).is_none() {
        judged.lease_until = judged.lease_until.min(now.past.after(record.lease));
    }
    judged
}

/// The clocks of two processes differ by this much at most.
fn tolerated(now: Now) -> Timestamp {
    now.at.after(now.at.duration_since(now.past))
}
