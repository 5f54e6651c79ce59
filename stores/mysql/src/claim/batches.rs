//! Claims and completions that are executed in batches.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use sqlx::MySqlConnection;

use crate::{
    engine::{Engine, Work, execute, time},
    error::{ErrorKind, error_class, error_kind},
    sql::batches::{claim_values, complete_values, existing_values},
};
use idempotent_core::{RecordId, store::Effect};
use idempotent_sql::{
    TimedRecord,
    group_commit::{
        Batch, Batches, GroupCommitLimits, InBatch,
        steps::{ClaimStep, Claimed, ClaimsOfKey, Completed, CompletionStep, by_key, fail, settle},
    },
    statement::Statement,
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
        let step = ClaimKeys { engine: &engine, keys: &keys, bytes };
        match engine.batch(connection, &step).await {
            Ok(found) => keys.into_iter().for_each(|(id, claims)| settle(claims, found.get(&id))),
            Err(error) => {
                let replies = keys.into_values().flatten().map(|(_, reply)| reply);
                let batch = (&engine.statements.names.table, "claim");
                fail(batch, replies, &error, is_unknown(&error));
            }
        }
    }
}

/// The first claims of each key.
struct ClaimKeys<'a> {
    engine: &'a Engine,
    keys: &'a BTreeMap<RecordId, ClaimsOfKey>,
    bytes: usize,
}

#[async_trait]
impl Work<HashMap<RecordId, TimedRecord>> for ClaimKeys<'_> {
    /// Returns what the claims have found.
    async fn run(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<HashMap<RecordId, TimedRecord>, sqlx::Error> {
        let Self { engine, keys, bytes } = *self;
        let statements = &engine.statements;
        let now = time(&execute(connection, &statements.clock()).await?.rows)?;
        let text = statements.batches.existing.text(keys.len());
        let large = LARGE_RECORDING.min(bytes / keys.len().max(1));
        let existing = Statement::new(&*text, existing_values(large, keys.keys()));
        let rows = execute(connection, &existing).await?.rows;
        let mut found = HashMap::new();
        let mut free: Vec<_> =
            keys.iter().filter_map(|(id, claims)| Some((id, &claims.first()?.0))).collect();
        for row in &rows {
            let id = idempotent_sql::id_from_row(row).map_err(sqlx::Error::Decode)?;
            free.retain(|(free, _)| **free != id);
            // A record without its recording, or that cannot be read, is left out: its claim is
            // executed alone.
            found.extend(idempotent_sql::claimed_from_row(row).ok().map(|record| (id, record)));
        }
        if free.is_empty() {
            return Ok(found);
        }
        let text = statements.batches.claim.text(free.len());
        let claim = Statement::confidential(&*text, claim_values(now, &free));
        match execute(connection, &claim).await {
            Ok(_) => found.extend(free.into_iter().map(|(id, _)| (*id, (None, now)))),
            // None of them is claimed. Each is claimed alone, so that one that another transaction
            // has claimed delays no other.
            Err(error)
                if matches!(
                    error_kind(&error),
                    ErrorKind::Exists | ErrorKind::Locked | ErrorKind::Conflict
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(found)
    }
}

/// Executes batches of completions.
pub(crate) async fn execute_completions(
    engine: Engine,
    mut batches: Batches<CompletionStep, Completed>,
) {
    while let Some((connection, batch)) = batches.next(&engine.pools.batches).await {
        let step = CompleteRecords { engine: &engine, batch: &batch };
        let completed = engine.batch(connection, &step).await;
        let replies = batch.into_iter().map(|(_, reply)| reply);
        match completed {
            Ok(true) => replies.for_each(|reply| reply.send(InBatch::Done(Ok(())))),
            Ok(false) => replies.for_each(|reply| reply.send(InBatch::Alone)),
            Err(error) => {
                let batch = (&engine.statements.names.table, "complete");
                fail(batch, replies, &error, is_unknown(&error));
            }
        }
    }
}

/// The completions of a batch.
struct CompleteRecords<'a> {
    engine: &'a Engine,
    batch: &'a Batch<CompletionStep, Completed>,
}

#[async_trait]
impl Work<bool> for CompleteRecords<'_> {
    /// Returns whether all records were completed. If not, each is completed alone, which changes
    /// nothing where it is completed.
    async fn run(&self, connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let Self { engine, batch } = *self;
        let mut completions: Vec<_> =
            batch.iter().map(|(step, _)| (&step.lease, step.recording.as_ref())).collect();
        // A completion that is sent again while the first one is still queued.
        completions.sort_by_key(|(lease, _)| *lease.id.as_bytes());
        completions.dedup_by_key(|(lease, _)| lease.id);
        let text = engine.statements.batches.complete.text(completions.len());
        let complete = Statement::confidential(&*text, complete_values(&completions));
        let changed = execute(connection, &complete).await?.changed;
        Ok(completions.len() == batch.len()
            && usize::try_from(changed).is_ok_and(|changed| changed == batch.len()))
    }
}

fn is_unknown(error: &sqlx::Error) -> bool {
    error_class(error).effect == Effect::Unknown
}
