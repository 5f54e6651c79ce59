//! Claims and completions that are committed by themselves.

use bytes::Bytes;

use self::{
    alone::claim_alone,
    batches::{LARGE_RECORDING, execute_claims, execute_completions},
};
use crate::{
    engine::{Engine, Resend},
    server::io_thread::spawn,
};
use idempotent_core::{
    Lease, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence},
};
use idempotent_sql::{
    fence,
    group_commit::{
        Turn,
        steps::{ClaimStep, CompletionStep, Groups},
    },
};

pub(crate) mod alone;
pub(crate) mod batches;
pub(crate) mod records;

/// Claims alone or in a batch. A batch settles claims of new keys, and claims that change nothing;
/// any other is then executed alone.
pub(crate) async fn claim(
    engine: &Engine,
    groups: &Groups,
    id: &RecordId,
    claim: &Claim,
) -> Result<ClaimOutcome, StoreError> {
    let step = || ClaimStep { id: *id, claim: claim.clone() };
    let bytes = groups.limits().bytes.get();
    let start = |batches| spawn(execute_claims(engine.clone(), bytes, batches));
    match groups.claims.turn(step, start).await {
        Turn::Alone(turn) => claim_alone(engine, id, claim, turn.repeated).await,
        Turn::Done(Ok(outcome)) => Ok(outcome),
        Turn::Done(Err(failure)) => Err(engine.store_error("claim", failure.into())),
        Turn::TimedOut => Err(engine.store_error("claim", sqlx::Error::PoolTimedOut)),
    }
}

/// Completes alone or in a batch. A completion that a batch did not find to be the owner's is then
/// executed alone.
pub(crate) async fn complete(
    engine: &Engine,
    groups: &Groups,
    lease: &Lease,
    recording: &Bytes,
) -> Result<Fence, StoreError> {
    let completions = &groups.completions;
    let step = || CompletionStep { lease: *lease, recording: recording.clone() };
    let start = |batches| spawn(execute_completions(engine.clone(), batches));
    let turn = if recording.len() < LARGE_RECORDING {
        completions.turn(step, start).await
    } else {
        Turn::Alone(completions.turn_alone())
    };
    match turn {
        Turn::Alone(_turn) => {
            let statement = engine.statements("complete").await?.steps.complete(lease, recording);
            engine.change("complete", statement, Resend::Always).await.map(fence)
        }
        Turn::Done(Ok(())) => Ok(Fence::Passed),
        Turn::Done(Err(failure)) => Err(engine.store_error("complete", failure.into())),
        Turn::TimedOut => Err(engine.store_error("complete", sqlx::Error::PoolTimedOut)),
    }
}
