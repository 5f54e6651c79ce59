//! Decisions of operators. A decision and its entry of the log are one transaction.

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::{DECIDED_UNCHANGED, REMOVED_UNCHANGED},
    item::{Content, Contents, Stored, Tag, decode, encode, log_entry},
    service_time::Now,
    table,
};
use bytes::Bytes;
use idempotent_core::{
    OwnerToken, Record, RecordId, RecordState,
    protocol::{AuditEntry, Removal, Replacement, Resolution, ResolveOutcome},
    transition::{self, Change},
};

use super::{
    blobs,
    decided::{DECISIONS, judged, replace as replace_record},
    ends::{INLINE_RECORDING, with_recording},
    lookup::contents_of,
};

/// Resolves a held key.
pub(crate) async fn resolve(
    engine: &Engine,
    id: &RecordId,
    seen: &OwnerToken,
    resolution: &Resolution,
    audit: &AuditEntry,
) -> Result<ResolveOutcome, CallFailure> {
    let mut stored = engine.read(id).await?;
    let place = place();
    for _ in 0..DECISIONS {
        let now = engine.now(id).await?;
        let seen_record = stored.as_ref().map(|stored| judged(&stored.record, now));
        let surely = transition::resolve(seen_record.as_ref(), *seen, resolution, now.past);
        let (Some(found), false) = (&stored, surely.0 == Change::Keep) else {
            return Ok(surely.1);
        };
        let (change, outcome) = transition::resolve(Some(&found.record), *seen, resolution, now.at);
        let written = match (change, outcome) {
            (Change::Keep, _) => return Ok(outcome),
            // The lease is shortened: the service's clock was set back.
            (Change::Put(record), ResolveOutcome::Conflict) => {
                replace_record(engine, id, found, record, found.contents.clone()).await?
            }
            (Change::Put(record), ResolveOutcome::Resolved) => {
                let (record, contents) = completed(engine, id, record).await?;
                let next = Some((record, contents));
                decide(engine, id, (found, now), next, (&place, audit)).await?
            }
            (Change::Remove, _) => decide(engine, id, (found, now), None, (&place, audit)).await?,
        };
        match written {
            Ok(()) => return Ok(outcome),
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}

/// Stores the recording of a record that an operator has completed.
async fn completed(
    engine: &Engine,
    id: &RecordId,
    record: Record,
) -> Result<(Record, Contents), CallFailure> {
    let recording = match &record.state {
        RecordState::Completed(recording) => recording.clone(),
        RecordState::InFlight | RecordState::Held => Bytes::new(),
    };
    let until = record.expires_at;
    let content = blobs::store(engine, id, &recording, INLINE_RECORDING, until).await?;
    Ok(with_recording(record, content))
}

/// Removes a record. Returns whether it was removed.
pub(crate) async fn remove(
    engine: &Engine,
    id: &RecordId,
    removal: &Removal,
    audit: &AuditEntry,
) -> Result<bool, CallFailure> {
    let mut stored = engine.read(id).await?;
    let place = place();
    for _ in 0..DECISIONS {
        let now = engine.now(id).await?;
        let record = stored.as_ref().map(|stored| judged(&stored.record, now));
        let (change, removed) = transition::remove(record.as_ref(), removal, now.past);
        let (Change::Remove, Some(found)) = (change, &stored) else { return Ok(removed) };
        match decide(engine, id, (found, now), None, (&place, audit)).await? {
            Ok(()) => return Ok(true),
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}

/// Replaces a record, or removes it, and adds the entry to the log, unless the record has changed
/// since it was read.
async fn decide(
    engine: &Engine,
    id: &RecordId,
    (seen, now): (&Stored, Now),
    next: Option<(Record, Contents)>,
    (place, audit): (&RecordId, &AuditEntry),
) -> Result<Result<(), Option<Stored>>, CallFailure> {
    let tag = Tag::random();
    let values = vec![(":seen", seen.tag.value())];
    let record = match next {
        Some((record, contents)) => {
            let next = Stored { record, contents, tag, noted: seen.noted, watched: seen.watched };
            let expression = engine.expression(None, &[DECIDED_UNCHANGED], values);
            table::Change::Put(encode(&engine.keys, id, &next), expression)
        }
        None => {
            let expression = engine.expression(None, &[REMOVED_UNCHANGED], values);
            table::Change::Delete(engine.keys.record(id), expression)
        }
    };
    let audit = audit.of_record(&seen.record, now.at);
    let entry = log_entry(&engine.keys, place, &audit, now.at);
    let entry = table::Change::Put(entry, engine.expression(None, &[], Vec::new()));
    if let Err(refused) = engine.table.transact(vec![record, entry], &tag.token()).await? {
        // An earlier request of this call may have been executed.
        let executed =
            refused.in_doubt && { engine.table.get(&engine.keys.log(place)).await?.is_some() };
        if !executed {
            let item = match refused.item {
                Some(item) => Some(item),
                None => engine.table.get(&engine.keys.record(id)).await?,
            };
            return Ok(Err(item.as_ref().map(decode).transpose()?));
        }
    }
    blobs::remove(engine, id, seen.contents.blobs()).await;
    Ok(Ok(()))
}

/// The place of one decision in the log.
fn place() -> RecordId {
    let mut place = [0; 32];
    fastrand::fill(&mut place);
    RecordId::from_bytes(place)
}

/// Replaces bytes of a record. Returns whether they were replaced.
pub(crate) async fn replace(
    engine: &Engine,
    id: &RecordId,
    replacement: &Replacement,
) -> Result<bool, CallFailure> {
    let mut stored = engine.read(id).await?;
    for _ in 0..DECISIONS {
        let now = engine.now(id).await?;
        let Some(found) = &stored else { return Ok(false) };
        let whole = match contents_of(engine, id, found, now.at).await? {
            Ok(whole) => whole,
            Err(changed) => {
                stored = changed;
                continue;
            }
        };
        let (change, replaced) = transition::replace(Some(&whole), replacement);
        let Change::Put(record) = change else { return Ok(replaced) };
        let contents = replaced_contents(engine, id, &found.contents, &record, replacement).await?;
        match replace_record(engine, id, found, record, contents).await? {
            Ok(()) => return Ok(true),
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}

/// Stores the parts that were replaced.
async fn replaced_contents(
    engine: &Engine,
    id: &RecordId,
    before: &Contents,
    record: &Record,
    replacement: &Replacement,
) -> Result<Contents, CallFailure> {
    let until = record.expires_at;
    let store = |content: Bytes| async move {
        blobs::store(engine, id, &content, INLINE_RECORDING, until).await
    };
    let mut contents = before.clone();
    if !replacement.was.recording.is_empty()
        && let RecordState::Completed(recording) = &record.state
    {
        contents.recording = Some(store(recording.clone()).await?);
    }
    if !replacement.was.steps.is_empty() {
        contents.steps = vec![store(record.notes.steps.clone()).await?];
    }
    if !replacement.was.input.is_empty() {
        contents.input = Some(store(record.notes.input.clone()).await?).filter(not_empty);
    }
    Ok(contents)
}

fn not_empty(content: &Content) -> bool {
    !matches!(content, Content::Inline(content) if content.is_empty())
}
