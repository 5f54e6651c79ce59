//! Notes of handlers.

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::{NOTE_IN_FLIGHT, NOTE_ONCE, NOTE_OWNER},
    item::{Content, Contents, Tag, bytes, decode, names, number, text},
    table::Former,
};
use idempotent_core::{
    Lease, RecordState,
    protocol::{Fence, Note},
};

use super::blobs::{self, list};

/// The longest step and the longest input in the item of the record: each renewal is billed as a
/// write of the whole item.
const INLINE_STEP: usize = 512;
const INLINE_INPUT: usize = 1_024;

/// Adds a note: one write if its step and its input are inline.
pub(crate) async fn note(
    engine: &Engine,
    lease: &Lease,
    note: &Note,
) -> Result<Fence, CallFailure> {
    let Some(contents) = contents_of(engine, lease, note).await? else { return Ok(Fence::Fenced) };
    let (tag, shard) = (Tag::random(), engine.keys.shard_of(&lease.id));
    let mut set = vec!["#tag = :tag", "#noted = :tag"];
    let mut values = vec![
        (":o", bytes(lease.owner.as_bytes())),
        (":in_flight", number(1)),
        (":hold", number(1)),
        (":tag", tag.value()),
        (":noted", tag.value()),
        (":shard", text(shard)),
    ];
    if let Some(reference) = &note.reference {
        set.push("#refr = :refr");
        values.push((":refr", text(reference.as_str())));
    }
    if let Some(progress) = &note.progress {
        set.push("#prog = :prog");
        values.push((":prog", text(progress.as_str())));
    }
    if !contents.steps.is_empty() {
        set.push("#steps = list_append(#steps, :step)");
        values.push((":step", list(&contents.steps)));
    }
    if let Some(input) = &contents.input {
        set.push("#inp = :inp");
        values.push((":inp", input.value()));
    }
    if note.hold {
        set.push("#hold = :hold");
    }
    if note.hold || contents.input.is_some() {
        set.push("#held = :shard");
    }
    // A key that can be held must stay in the table.
    let removed = if note.hold { " REMOVE #gone" } else { "" };
    let update = format!("SET {}{removed}", set.join(", "));
    let guards = [NOTE_OWNER, NOTE_IN_FLIGHT, NOTE_ONCE];
    let expression = engine.expression(Some(update), &guards, values);
    let refused = match engine
        .table
        .update(&engine.keys.record(&lease.id), expression, Former::Unused)
        .await?
    {
        Ok(_) => return Ok(Fence::Passed),
        Err(refused) => refused,
    };
    // An earlier request of this call has added the note.
    if refused.item.as_ref().is_some_and(|item| item.get(names::NOTED) == Some(&tag.value())) {
        return Ok(Fence::Passed);
    }
    let stored = refused.item.as_ref().map(decode).transpose()?;
    blobs::remove_unused(engine, &lease.id, &contents, stored.as_ref()).await;
    Ok(Fence::Fenced)
}

/// Stores what a note adds; `None` if the caller does not own the key.
async fn contents_of(
    engine: &Engine,
    lease: &Lease,
    note: &Note,
) -> Result<Option<Contents>, CallFailure> {
    let inline = |content: &bytes::Bytes| Some(Content::Inline(content.clone()));
    let is_inline = note.step.len() <= INLINE_STEP && note.input.len() <= INLINE_INPUT;
    let [mut step, mut input] =
        [&note.step, &note.input].map(|content| inline(content).filter(|_| !content.is_empty()));
    if !is_inline {
        let stored = engine.read(&lease.id).await?.filter(|stored| {
            stored.record.owner == lease.owner && stored.record.state == RecordState::InFlight
        });
        let Some(stored) = stored else { return Ok(None) };
        let until = stored.record.expires_at;
        if step.is_some() {
            step = Some(blobs::store(engine, &lease.id, &note.step, INLINE_STEP, until).await?);
        }
        if input.is_some() {
            input = Some(blobs::store(engine, &lease.id, &note.input, INLINE_INPUT, until).await?);
        }
    }
    Ok(Some(Contents { recording: None, steps: step.into_iter().collect(), input }))
}
