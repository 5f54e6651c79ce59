//! Claims of keys, and the steps of their owners.
//!
//! If the store waits for replicas, the steps that the next master must know are sent on reserved
//! connections ([`Replicas`] says which and why).

use bytes::Bytes;

use crate::{
    encoding::{abandoned_code, completion_args, log_entry},
    engine::{Beside, Engine},
    error::CallFailure,
    lua::{Arg, Script},
    net::{ConnectionRole, Replicas, SendAgain},
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId,
    protocol::{AuditEntry, Claim, ClaimOutcome, Fence, Resolution, ResolveOutcome},
};

mod completion;
mod grant;
mod read;
mod renewal;

pub(crate) use self::{read::look_up, renewal::renew};

/// Claims a key.
pub(crate) async fn claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
) -> Result<ClaimOutcome, CallFailure> {
    let key = engine.key(id);
    match &engine.replicas {
        // Boxed: keeps the future small for stores without replicas.
        Some(replicas) => Box::pin(claim_replicated(engine, replicas, (id, &key), claim)).await,
        None => {
            let claimed =
                grant::claim_on(engine, ConnectionRole::Requests, (id, &key), claim).await;
            claimed.map(|claimed| claimed.outcome)
        }
    }
}

/// Claims a key, and undoes the claim unless enough replicas have it.
async fn claim_replicated(
    engine: &Engine,
    replicas: &Replicas,
    (id, key): (&RecordId, &[u8]),
    claim: &Claim,
) -> Result<ClaimOutcome, CallFailure> {
    let reserved = replicas.reserve().await;
    let claimed = grant::claim_on(engine, reserved.role(), (id, key), claim).await?;
    if let ClaimOutcome::Granted { attempt } = claimed.outcome
        && let Err(failure) = replicas.confirm(&engine.router, &claimed.route).await
    {
        // The claim may have been acknowledged before, and its handler may be running.
        if !claimed.was_owned {
            undo_claim(engine, &Lease { id: *id, owner: claim.owner }, attempt).await;
        }
        return Err(failure);
    }
    Ok(claimed.outcome)
}

/// Undoes a claim that was just granted. The caller treats the outcome as unknown and releases
/// the key too, so a failure here is harmless; eventually the lease expires.
async fn undo_claim(engine: &Engine, lease: &Lease, attempt: u32) {
    let undone = match attempt {
        1 => release(engine, lease).await,
        // Earlier attempts may have had effects, so the record and its number of attempts must
        // stay.
        _ => {
            let retry = [Arg::Number(abandoned_code(Abandoned::Retry).into())];
            step(engine, &engine.scripts.abandon, (lease, Beside::Nothing), &retry).await
        }
    };
    if let Err(failure) = undone {
        let cause = std::error::Error::source(&failure);
        tracing::debug!(
            id = %lease.id.short(),
            error = %failure,
            cause,
            "undoing a claim that too few replicas acknowledged failed; its lease will expire"
        );
    }
}

/// Completes a claim. Without enough replicas the recording stays on the master, and the owner can
/// complete again.
pub(crate) async fn complete(
    engine: &Engine,
    lease: &Lease,
    recording: &Bytes,
) -> Result<Fence, CallFailure> {
    let Some(replicas) = &engine.replicas else {
        let role = ConnectionRole::Requests;
        return completion::complete_on(engine, role, lease, recording)
            .await
            .map(|(fence, _)| fence);
    };
    Box::pin(async {
        let reserved = replicas.reserve().await;
        let (fence, route) =
            completion::complete_on(engine, reserved.role(), lease, recording).await?;
        if fence == Fence::Passed {
            replicas.confirm(&engine.router, &route).await?;
        }
        Ok(fence)
    })
    .await
}

// A release, an abandonment or a resolution is not sent again: if the first one took effect,
// the second finds a changed record and would return `Fenced`.

pub(crate) async fn release(engine: &Engine, lease: &Lease) -> Result<Fence, CallFailure> {
    step(engine, &engine.scripts.release, (lease, Beside::ListIfTogether), &[]).await
}

pub(crate) async fn abandon(
    engine: &Engine,
    lease: &Lease,
    policy: Abandoned,
) -> Result<Fence, CallFailure> {
    let code = [Arg::Number(abandoned_code(policy).into())];
    match (&engine.replicas, policy) {
        (Some(replicas), Abandoned::Hold) => hold_replicated(engine, replicas, lease, &code).await,
        (Some(_) | None, _) => {
            // A record that holds its key is in the list already.
            let beside = if policy == Abandoned::Hold { Beside::List } else { Beside::Nothing };
            step(engine, &engine.scripts.abandon, (lease, beside), &code).await
        }
    }
}

/// Holds a key, and fails unless enough replicas have the hold.
async fn hold_replicated(
    engine: &Engine,
    replicas: &Replicas,
    lease: &Lease,
    hold: &[Arg<'_>],
) -> Result<Fence, CallFailure> {
    let reserved = replicas.reserve().await;
    let (role, scripts) = (reserved.role(), &engine.scripts);
    let (once, listed) = ((role, SendAgain::Never), (lease, Beside::List));
    let (mut fence, mut route) = engine.call_fenced(once, &scripts.abandon, listed, hold).await?;
    if fence == Fence::Fenced {
        // An earlier call may have held the key but lacked replicas.
        let how = (role, SendAgain::Once);
        (fence, route) =
            engine.call_fenced(how, &scripts.hold_again, (lease, Beside::Nothing), &[]).await?;
    }
    if fence == Fence::Passed {
        replicas.confirm(&engine.router, &route).await?;
    }
    Ok(fence)
}

pub(crate) async fn resolve(
    engine: &Engine,
    id: &RecordId,
    seen: &OwnerToken,
    resolution: &Resolution,
    audit: &AuditEntry,
) -> Result<ResolveOutcome, CallFailure> {
    let seen = Lease { id: *id, owner: *seen };
    let none = Bytes::new();
    let (completes, recording) = match resolution {
        Resolution::Complete(recording) => (1, recording),
        Resolution::Release => (0, &none),
    };
    let entry = log_entry(audit);
    let mut args = vec![Arg::Number(completes)];
    args.extend(completion_args(recording));
    args.extend(entry.iter().map(|text| Arg::Bytes(text.as_bytes())));
    let record = (&seen, Beside::ListAndLog);
    Ok(match step(engine, &engine.scripts.resolve, record, &args).await? {
        Fence::Passed => ResolveOutcome::Resolved,
        Fence::Fenced => ResolveOutcome::Conflict,
    })
}

/// Calls a script that compares the owner, once.
pub(crate) async fn step(
    engine: &Engine,
    script: &Script,
    record: (&Lease, Beside),
    more: &[Arg<'_>],
) -> Result<Fence, CallFailure> {
    let how = (ConnectionRole::Requests, SendAgain::Never);
    engine.call_fenced(how, script, record, more).await.map(|(fence, _)| fence)
}
