//! Claims and completions that are executed in batches.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use sqlx::PgConnection;

use crate::{
    engine::Engine,
    error::error_class,
    sql::statements::batches::{claim_batch, complete_batch},
};
use idempotent_core::{
    Lease, RecordId,
    protocol::{Claim, ClaimOutcome},
    store::Effect,
    transition::{self, Change},
};
use idempotent_sql::{
    PooledConnection, TimedRecord,
    group_commit::{Batch, Batches, GroupCommit, GroupCommitLimits, GroupedStep, InBatch, Reply},
    server::NoResponse,
};

/// How many claims, and how many completions, are executed side by side before further ones are
/// executed in batches.
pub(crate) const ALONE: usize = 8;
/// How many batches of claims, and how many of completions, run at the same time at most: one, and
/// those that are late.
const BATCHES: usize = 3;
/// When steps are executed in batches by default, and how many.
pub(crate) const LIMITS: GroupCommitLimits =
    GroupCommitLimits { batches: BATCHES, ..GroupCommitLimits::new(ALONE) };
/// A recording of at least this many bytes is always written and read by a step alone: in a batch,
/// it takes more of the server's time, and the other steps wait for it.
pub(crate) const LARGE_RECORDING: usize = 64 << 10;
/// About how many bytes a step sends beside its recording.
const STEP_BYTES: usize = 256;

/// The steps of one table that can be executed in batches.
pub(crate) struct Groups {
    pub(crate) claims: Arc<GroupCommit<ClaimStep, Claimed>>,
    pub(crate) completions: Arc<GroupCommit<CompletionStep, Completed>>,
}

pub(crate) struct ClaimStep {
    pub(crate) id: RecordId,
    pub(crate) claim: Claim,
}

pub(crate) struct CompletionStep {
    pub(crate) lease: Lease,
    pub(crate) recording: Bytes,
}

impl GroupedStep for ClaimStep {
    fn bytes(&self) -> usize {
        STEP_BYTES
    }
}

impl GroupedStep for CompletionStep {
    fn bytes(&self) -> usize {
        STEP_BYTES + self.recording.len()
    }
}

impl Groups {
    pub(crate) fn new(limits: GroupCommitLimits) -> Self {
        Self { claims: GroupCommit::new(limits), completions: GroupCommit::new(limits) }
    }

    pub(crate) fn limits(&self) -> GroupCommitLimits {
        self.claims.limits()
    }
}

/// The outcome of a claim in a batch.
pub(crate) type Claimed = Result<ClaimOutcome, NoResponse>;
/// The outcome of a completion in a batch that has passed the fence.
pub(crate) type Completed = Result<(), NoResponse>;
/// The claims of one key in a batch.
type ClaimsOfKey = Vec<(Claim, Reply<Claimed>)>;

/// Executes batches of claims, which return recordings of at most `bytes` in all.
pub(crate) async fn execute_claims(
    engine: Engine,
    bytes: usize,
    mut batches: Batches<ClaimStep, Claimed>,
) {
    while let Some((connection, batch)) = batches.next(&engine.pools.batches).await {
        let mut keys = BTreeMap::<_, ClaimsOfKey>::new();
        for (ClaimStep { id, claim }, reply) in batch {
            keys.entry(id).or_default().push((claim, reply));
        }
        match claim_keys(&engine, connection, &keys, bytes).await {
            Ok(found) => keys.into_iter().for_each(|(id, claims)| settle(claims, found.get(&id))),
            Err(error) => {
                let replies = keys.into_values().flatten().map(|(_, reply)| reply);
                fail(&engine, "claim", replies, &error);
            }
        }
    }
}

/// Executes the first claim of each key; returns what it found.
async fn claim_keys(
    engine: &Engine,
    connection: Result<PooledConnection<PgConnection>, sqlx::Error>,
    keys: &BTreeMap<RecordId, ClaimsOfKey>,
    bytes: usize,
) -> Result<HashMap<RecordId, TimedRecord>, sqlx::Error> {
    let firsts = keys.iter().filter_map(|(id, claims)| Some((id, &claims.first()?.0)));
    let firsts: Vec<_> = firsts.collect();
    let fingerprints: Vec<_> =
        firsts.iter().map(|(_, claim)| claim.fingerprint.to_bytes()).collect();
    let text = &engine.try_statements().await?.claim_batch;
    let statement = claim_batch(text, &firsts, &fingerprints, LARGE_RECORDING, bytes);
    let rows = engine.execute_batch(connection?, &statement).await?;
    // A record without its recording, or that cannot be read, is left out: its claim is executed
    // alone.
    let found = |row| {
        Some((idempotent_sql::id_from_row(row).ok()?, idempotent_sql::claimed_from_row(row).ok()?))
    };
    Ok(rows.iter().filter_map(found).collect())
}

/// Executes batches of completions.
pub(crate) async fn execute_completions(
    engine: Engine,
    mut batches: Batches<CompletionStep, Completed>,
) {
    while let Some((connection, batch)) = batches.next(&engine.pools.batches).await {
        match complete_records(&engine, connection, &batch).await {
            Ok(completed) => {
                for (CompletionStep { lease, .. }, reply) in batch {
                    let passed = completed.contains(&lease);
                    reply.send(if passed { InBatch::Done(Ok(())) } else { InBatch::Alone });
                }
            }
            Err(error) => {
                fail(&engine, "complete", batch.into_iter().map(|(_, reply)| reply), &error);
            }
        }
    }
}

/// Returns the leases whose records were completed.
async fn complete_records(
    engine: &Engine,
    connection: Result<PooledConnection<PgConnection>, sqlx::Error>,
    batch: &Batch<CompletionStep, Completed>,
) -> Result<HashSet<Lease>, sqlx::Error> {
    let completions = batch.iter().map(|(step, _)| (&step.lease, step.recording.as_ref()));
    let completions: Vec<_> = completions.collect();
    let statement = complete_batch(&engine.try_statements().await?.complete_batch, &completions);
    let rows = engine.execute_batch(connection?, &statement).await?;
    // As for claims.
    Ok(rows.iter().filter_map(|row| idempotent_sql::lease_from_row(row).ok()).collect())
}

/// Replies to the steps of a batch that failed. They are executed alone, so that only those fail
/// that are at fault, unless the server is known not to respond.
fn fail<T>(
    engine: &Engine,
    operation: &'static str,
    replies: impl Iterator<Item = Reply<Result<T, NoResponse>>>,
    error: &sqlx::Error,
) {
    let table = engine.names().table.as_str();
    let down = NoResponse::of(error).filter(|failure| matches!(failure, NoResponse::Down));
    if down.is_some() {
        tracing::debug!(table, operation, %error, "a batch failed, and its steps fail");
    } else {
        tracing::debug!(table, operation, %error, "a batch failed; executing its steps alone");
    }
    let unknown = error_class(error).effect == Effect::Unknown;
    for reply in replies {
        reply.send(match down {
            Some(failure) => InBatch::Done(Err(*failure)),
            None if unknown => InBatch::Unknown,
            None => InBatch::Alone,
        });
    }
}

/// Decides the claims of one key, from the record that the first of them found or, if it found
/// none, has inserted.
fn settle(claims: ClaimsOfKey, found: Option<&TimedRecord>) {
    let Some((mut record, now)) = found.cloned() else {
        // The statement has not written it.
        return claims.into_iter().for_each(|(_, reply)| reply.send(InBatch::Alone));
    };
    for (claim, reply) in claims {
        match transition::claim(record.as_ref(), &claim, now) {
            (Change::Keep, outcome) => reply.send(InBatch::Done(Ok(outcome))),
            (Change::Put(new), outcome) if record.is_none() => {
                record = Some(new);
                reply.send(InBatch::Done(Ok(outcome)));
            }
            (Change::Put(_) | Change::Remove, _) => reply.send(InBatch::Alone),
        }
    }
}
