//! The ends of an attempt: completion, release, abandonment.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::{
        ABANDON_IN_FLIGHT, ABANDON_ONCE, ABANDON_OWNER, ABANDON_RETRY, COMPLETE_IN_TIME,
        COMPLETE_OPEN, COMPLETE_OWNER, HOLD_IN_FLIGHT, HOLD_OWNER, RELEASE_IN_FLIGHT,
        RELEASE_OWNER,
    },
    item::{Content, Contents, Item, Stored, Tag, bytes, decode, entry, number, text},
    service_time::Now,
    table::Former,
};
use idempotent_core::{
    Abandoned, EncodedRecording, Lease, Record, RecordState,
    clock::Timestamp,
    history::Kind,
    protocol::Fence,
    transition::{self, Change},
};

use super::{
    blobs,
    decided::{DECISIONS, replace},
};

/// The longest recording in the item of its record. A claim that is rejected is billed as a write
/// of that item, which is dearer than a read of another one.
pub(super) const INLINE_RECORDING: usize = 8 * 1024;

/// Completes an operation: one write if the recording is inline.
pub(crate) async fn complete(
    engine: &Engine,
    lease: &Lease,
    recording: &Bytes,
) -> Result<Fence, CallFailure> {
    if recording.len() > INLINE_RECORDING {
        let stored = engine.read(&lease.id).await?;
        return complete_decided(engine, lease, recording, stored).await;
    }
    let now = engine.now(&lease.id).await?;
    let tag = Tag::random();
    let status = EncodedRecording::status_of(recording);
    let (status_set, status_removed) =
        if status.is_some() { (", #code = :code", "") } else { ("", ", #code") };
    let update = format!(
        "SET #st = :completed, #rec = :rec, #done = :done, #gone = #due, #steps = :none, \
         #tag = :tag, #hist = list_append(#hist, :entry){status_set} \
         REMOVE #held, #inp, #prog{status_removed}"
    );
    let values = vec![
        (":o", bytes(lease.owner.as_bytes())),
        (":in_flight", number(1)),
        (":completed", number(2)),
        (":held", number(3)),
        (":now", number(now.at.as_millis())),
        (":done", number(now.at.as_millis())),
        (":rec", Content::Inline(recording.clone()).value()),
        (":none", AttributeValue::L(Vec::new())),
        (":tag", tag.value()),
        (":entry", list_of(Kind::Completed, now)),
        (":code", number(status.unwrap_or_default())),
    ];
    let guards = [COMPLETE_OWNER, COMPLETE_OPEN, COMPLETE_IN_TIME];
    let expression = engine.expression(Some(update), &guards, values);
    let key = engine.keys.record(&lease.id);
    match engine.table.update(&key, expression, Former::Returned).await? {
        Ok(former) => {
            drop_contents(engine, lease, former.as_ref()).await;
            Ok(Fence::Passed)
        }
        Err(refused) => {
            let stored = refused.item.as_ref().map(decode).transpose()?;
            complete_decided(engine, lease, recording, stored).await
        }
    }
}

/// Completes an operation whose recording is large, or whose ttl is over.
async fn complete_decided(
    engine: &Engine,
    lease: &Lease,
    recording: &Bytes,
    mut stored: Option<Stored>,
) -> Result<Fence, CallFailure> {
    let mut written: Option<(Content, Timestamp)> = None;
    for _ in 0..DECISIONS {
        let now = engine.now(&lease.id).await?;
        let record = stored.as_ref().map(|stored| &stored.record);
        let completed = transition::complete(record, lease.owner, recording, now.at);
        let (Change::Put(record), Some(seen)) = (completed.0, &stored) else {
            if let Some((content, _)) = written {
                let unused = Contents { recording: Some(content), ..Contents::default() };
                blobs::remove_unused(engine, &lease.id, &unused, stored.as_ref()).await;
            }
            return Ok(completed.1);
        };
        let content = match &written {
            Some((content, until)) if *until >= record.expires_at => content.clone(),
            _ => {
                let (id, until) = (&lease.id, record.expires_at);
                let content = blobs::store(engine, id, recording, INLINE_RECORDING, until).await?;
                written = Some((content.clone(), until));
                content
            }
        };
        let (record, contents) = with_recording(record, content);
        match replace(engine, &lease.id, seen, record, contents).await? {
            Ok(()) => return Ok(Fence::Passed),
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}

/// The completed record and its contents.
pub(super) fn with_recording(mut record: Record, content: Content) -> (Record, Contents) {
    record.state = RecordState::Completed(Bytes::new());
    (record, Contents { recording: Some(content), ..Contents::default() })
}

/// Releases a key: one removal.
pub(crate) async fn release(engine: &Engine, lease: &Lease) -> Result<Fence, CallFailure> {
    let values = vec![(":o", bytes(lease.owner.as_bytes())), (":in_flight", number(1))];
    let expression = engine.expression(None, &[RELEASE_OWNER, RELEASE_IN_FLIGHT], values);
    let key = engine.keys.record(&lease.id);
    Ok(match engine.table.delete(&key, expression).await? {
        Ok(former) => {
            drop_contents(engine, lease, former.as_ref()).await;
            Fence::Passed
        }
        // An earlier request of this call has removed the record.
        Err(refused) if refused.item.is_none() && refused.in_doubt => Fence::Passed,
        Err(_) => Fence::Fenced,
    })
}

/// Abandons an attempt: one write, or two if its record says `hold` and the policy does not.
pub(crate) async fn abandon(
    engine: &Engine,
    lease: &Lease,
    policy: Abandoned,
) -> Result<Fence, CallFailure> {
    let now = engine.now(&lease.id).await?;
    let tag = Tag::random();
    let key = engine.keys.record(&lease.id);
    let mut holds = policy == Abandoned::Hold;
    loop {
        let values = vec![
            (":o", bytes(lease.owner.as_bytes())),
            (":in_flight", number(1)),
            (":retry", number(0)),
            (":freed", number(0)),
            (":held", number(3)),
            (":shard", text(engine.keys.shard_of(&lease.id))),
            (":tag", tag.value()),
            (":entry", list_of(if holds { Kind::Held } else { Kind::Abandoned }, now)),
        ];
        let (update, guards) = if holds {
            ("SET #st = :held, #held = :shard{} REMOVE #gone", &[HOLD_OWNER, HOLD_IN_FLIGHT][..])
        } else {
            let guards = &[ABANDON_OWNER, ABANDON_IN_FLIGHT, ABANDON_RETRY, ABANDON_ONCE][..];
            ("SET #until = :freed{}", guards)
        };
        let update = update.replace("{}", ", #tag = :tag, #hist = list_append(#hist, :entry)");
        let expression = engine.expression(Some(update), guards, values);
        let refused = match engine.table.update(&key, expression, Former::Unused).await? {
            Ok(_) => return Ok(Fence::Passed),
            Err(refused) => refused,
        };
        let Some(item) = refused.item else { return Ok(Fence::Fenced) };
        if tag.is_of(&item) {
            // An earlier request of this call took effect.
            return Ok(Fence::Passed);
        }
        let record = decode(&item)?.record;
        let owned = record.owner == lease.owner && record.state == RecordState::InFlight;
        if holds || !owned || record.abandoned == Abandoned::Retry {
            return Ok(Fence::Fenced);
        }
        holds = true;
    }
}

/// One entry, to be appended to a history.
pub(super) fn list_of(kind: Kind, now: Now) -> AttributeValue {
    AttributeValue::L(vec![entry(kind, now.at)])
}

/// Removes the contents of a record that has ended.
async fn drop_contents(engine: &Engine, lease: &Lease, former: Option<&Item>) {
    if let Some(Ok(former)) = former.map(decode) {
        blobs::remove(engine, &lease.id, former.contents.blobs()).await;
    }
}
