//! Notes of handlers, and the search for operations that can be resumed from their inputs.

use futures_util::future::join_all;

use crate::{
    claim::look_up,
    engine::{Beside, Engine},
    error::CallFailure,
    lua::Arg,
    net::{ConnectionRole, ConnectionRoute, SendAgain},
};
use idempotent_core::{
    Abandoned, Lease, Record, RecordId, RecordState, ShortText,
    protocol::{Fence, Note, ResumablePage},
};

/// How many attempts one call looks up, and how many of them at the same time.
const LOOKED_UP: u32 = 256;
const CONCURRENT_LOOKUPS: usize = 32;

/// Adds a note. Unless it is nothing but progress, it waits for replicas; without enough of them it
/// stays on the master.
pub(crate) async fn note(
    engine: &Engine,
    lease: &Lease,
    note: &Note,
) -> Result<Fence, CallFailure> {
    let mut only_progress = Note::default();
    only_progress.progress.clone_from(&note.progress);
    let Some(replicas) = engine.replicas.as_ref().filter(|_| *note != only_progress) else {
        return note_on(engine, ConnectionRole::Requests, lease, note)
            .await
            .map(|(fence, _)| fence);
    };
    let reserved = replicas.reserve().await;
    let (fence, routes) = note_on(engine, reserved.role(), lease, note).await?;
    if fence == Fence::Passed {
        for route in &routes {
            replicas.confirm(&engine.router, route).await?;
        }
    }
    Ok(fence)
}

/// Adds a note. Returns whether it passed, and the connections on which it was sent.
async fn note_on(
    engine: &Engine,
    role: ConnectionRole,
    lease: &Lease,
    note: &Note,
) -> Result<(Fence, Vec<ConnectionRoute>), CallFailure> {
    let mut routes = Vec::new();
    if !note.input.is_empty() {
        // The index comes first: an input that is not in the index would never be found. A
        // failure in between leaves a member whose attempt has no input, which is harmless.
        let how = (&engine.scripts.index_input, role);
        routes.push(engine.inputs.add(&engine.router, how, lease).await?);
    }
    let text = |text: &Option<ShortText>| text.clone().unwrap_or_default();
    let (reference, progress) = (text(&note.reference), text(&note.progress));
    let args = [
        Arg::Bytes(reference.as_bytes()),
        Arg::Bytes(progress.as_bytes()),
        Arg::Bytes(&note.step),
        Arg::Bytes(&note.input),
        Arg::Number(note.hold.into()),
    ];
    let beside = if note.hold { Beside::List } else { Beside::Nothing };
    let resend = if note.step.is_empty() { SendAgain::Once } else { SendAgain::Never };
    let (fence, route) =
        engine.call_fenced((role, resend), &engine.scripts.note, (lease, beside), &args).await?;
    routes.push(route);
    Ok((fence, routes))
}

/// Looks up the next attempts of the index, and removes those that have ended.
pub(crate) async fn resumable(
    engine: &Engine,
    operation: &ShortText,
    after: Option<&RecordId>,
    limit: u32,
) -> Result<ResumablePage, CallFailure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let attempts = engine.inputs.next_attempts(&engine.router, after, LOOKED_UP).await?;
    let is_last = attempts.len() < usize::try_from(LOOKED_UP).unwrap_or(usize::MAX);
    let (mut page, mut ended, mut failed) = (ResumablePage::default(), Vec::new(), None);
    for attempts in attempts.chunks(CONCURRENT_LOOKUPS) {
        let reads = attempts.iter().map(|attempt| look_up(engine, &attempt.id));
        for (attempt, read) in attempts.iter().zip(join_all(reads).await) {
            match read {
                Ok(Some(read)) if read.record.is_resumable(read.at) => {
                    let is_new = page.ids.last() != Some(&attempt.id);
                    if is_new && read.record.operation == *operation {
                        page.ids.push(attempt.id);
                    }
                }
                Ok(read) => {
                    if has_ended(attempt, read.as_ref().map(|read| &read.record)) {
                        ended.push(*attempt);
                    }
                }
                Err(CallFailure::Unreadable(_)) => {}
                Err(failure) => failed = Some(failure),
            }
        }
        if page.ids.len() >= limit {
            break;
        }
    }
    page.next = attempts.last().map(|attempt| attempt.id).filter(|_| !is_last);
    if page.ids.len() >= limit {
        page.ids.truncate(limit);
        page.next = page.ids.last().copied();
    }
    engine.inputs.remove(&engine.router, &ended).await;
    match failed {
        Some(failure) if page.ids.is_empty() => Err(failure),
        _ => Ok(page),
    }
}

/// Whether an attempt of the index can neither be resumed nor note an input any more.
///
/// Between the look-up and the removal from the index another process may note an input. An attempt
/// that has ended is fenced, and every other attempt has its own member, so neither is lost
/// (`a_note_under_way_stays_in_the_index`).
fn has_ended(attempt: &Lease, record: Option<&Record>) -> bool {
    !record.is_some_and(|record| {
        record.state == RecordState::InFlight
            && record.abandoned == Abandoned::Retry
            && (record.owner == attempt.owner || !record.notes.input.is_empty())
    })
}
