//! Reading a record.

use bytes::{Bytes, BytesMut};

use crate::{
    engine::Engine,
    error::{CallFailure, Unreadable},
    item::Stored,
};
use idempotent_core::{Record, RecordId, RecordState, clock::Timestamp, protocol::Snapshot};

use super::{
    blobs,
    decided::{DECISIONS, judged},
};

/// Reads a record that has not expired, with its contents.
pub(crate) async fn look_up(
    engine: &Engine,
    id: &RecordId,
) -> Result<Option<Snapshot>, CallFailure> {
    let mut stored = engine.read(id).await?;
    for _ in 0..DECISIONS {
        let now = engine.now(id).await?;
        let Some(found) = stored else { return Ok(None) };
        if judged(&found.record, now).is_expired(now.past) {
            return Ok(None);
        }
        match contents_of(engine, id, &found, now.at).await? {
            Ok(record) => {
                return Ok(Some(Snapshot::new(record, now.at)));
            }
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}

/// The record with its contents. Returns what the record became if they were removed meanwhile.
///
/// The steps and the input of a record whose ttl is over may be gone: only a completion or an
/// operator ends it.
pub(crate) async fn contents_of(
    engine: &Engine,
    id: &RecordId,
    stored: &Stored,
    now: Timestamp,
) -> Result<Result<Record, Option<Stored>>, CallFailure> {
    let mut record = stored.record.clone();
    if matches!(record.state, RecordState::Completed(_)) {
        match recording_of(engine, id, stored).await? {
            Ok(recording) => record.state = RecordState::Completed(recording),
            Err(changed) => return Ok(Err(changed)),
        }
    }
    let is_over = record.expires_at <= now;
    let mut steps = BytesMut::new();
    for step in &stored.contents.steps {
        match blobs::load(engine, id, step).await? {
            Some(step) => steps.extend_from_slice(&step),
            None if is_over => {}
            None => return changed_since(engine, id, stored).await.map(Err),
        }
    }
    record.notes.steps = steps.freeze();
    if let Some(input) = &stored.contents.input {
        match blobs::load(engine, id, input).await? {
            Some(input) => record.notes.input = input,
            None if is_over => {}
            None => return changed_since(engine, id, stored).await.map(Err),
        }
    }
    Ok(Ok(record))
}

/// The recording of a completed record. Returns what the record became if it was removed meanwhile.
pub(super) async fn recording_of(
    engine: &Engine,
    id: &RecordId,
    stored: &Stored,
) -> Result<Result<Bytes, Option<Stored>>, CallFailure> {
    let recording = stored.contents.recording.as_ref().ok_or(Unreadable)?;
    match blobs::load(engine, id, recording).await? {
        Some(recording) => Ok(Ok(recording)),
        None => changed_since(engine, id, stored).await.map(Err),
    }
}

/// What a record has become whose contents are gone. If it has not changed, it is damaged.
async fn changed_since(
    engine: &Engine,
    id: &RecordId,
    stored: &Stored,
) -> Result<Option<Stored>, CallFailure> {
    let now = engine.read(id).await?;
    if now.as_ref().is_some_and(|now| now.tag == stored.tag) {
        return Err(Unreadable.into());
    }
    Ok(now)
}
