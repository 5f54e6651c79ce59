//! Claims and completions that are executed in batches.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::PgConnection;

use crate::{
    engine::Engine,
    error::error_class,
    sql::statements::batches::{claim_batch, complete_batch},
};
use idempotent_core::{Lease, RecordId, store::Effect};
use idempotent_sql::{
    PooledConnection, TimedRecord,
    group_commit::{
        Batch, Batches, GroupCommitLimits, InBatch,
        steps::{ClaimStep, Claimed, ClaimsOfKey, Completed, CompletionStep, by_key, fail, settle},
    },
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
/// Executes batches of claims, which return recordings of at most `bytes` in all.
pub(crate) async fn execute_claims(
    engine: Engine,
    bytes: usize,
    mut batches: Batches<ClaimStep, Claimed>,
) {
    while let Some((connection, batch)) = batches.next(&engine.pools.batches).await {
        let keys = by_key(batch);
        match claim_keys(&engine, connection, &keys, bytes).await {
            Ok(found) => keys.into_iter().for_each(|(id, claims)| settle(claims, found.get(&id))),
            Err(error) => {
                let replies = keys.into_values().flatten().map(|(_, reply)| reply);
                fail((&engine.names().table, "claim"), replies, &error, is_unknown(&error));
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
                let replies = batch.into_iter().map(|(_, reply)| reply);
                fail((&engine.names().table, "complete"), replies, &error, is_unknown(&error));
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

fn is_unknown(error: &sqlx::Error) -> bool {
    error_class(error).effect == Effect::Unknown
}
