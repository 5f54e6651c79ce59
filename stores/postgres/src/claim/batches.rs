//! Claims and completions that are executed in batches.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    num::{NonZeroU16, NonZeroUsize},
    sync::Arc,
};

use bytes::Bytes;
use sqlx::PgConnection;

use crate::{
    engine::Resend,
    error::{NoResponse, error_class, no_response},
    server::io_thread::spawn,
    store::PostgresStore,
};
use idempotent_core::{
    Lease, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Fence},
    store::Effect,
    transition::{self, Change},
};
use idempotent_sql::{
    self, PooledConnection, TimedRecord, fence,
    group_commit::{
        Batch, Batches, GroupCommit, GroupCommitLimits, GroupedStep, InBatch, Reply, Turn,
    },
};

/// How many claims, and how many completions, are executed side by side before further ones are
/// executed in batches.
pub(crate) const ALONE: usize = 8;
/// How many batches of claims, and how many of completions, run at the same time at most: one, and
/// those that are late.
const BATCHES: usize = 3;
/// A recording of at least this many bytes is always written and read by a step alone: in a batch,
/// it takes more of the server's time, and the other steps wait for it.
const LARGE_RECORDING: usize = 64 << 10;
/// About how many bytes a step sends beside its recording.
const STEP_BYTES: usize = 256;

/// The steps of one table that can be executed in batches.
pub(crate) struct Groups {
    pub(crate) claims: Arc<GroupCommit<ClaimStep, Claimed>>,
    pub(crate) completions: Arc<GroupCommit<CompletionStep, Completed>>,
}

pub(crate) struct ClaimStep {
    id: RecordId,
    claim: Claim,
}

pub(crate) struct CompletionStep {
    lease: Lease,
    recording: Bytes,
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

impl Default for Groups {
    fn default() -> Self {
        Self::new(GroupCommitLimits { batches: BATCHES, ..GroupCommitLimits::new(ALONE) })
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

/// Settings of group commit.
impl PostgresStore {
    /// Sets whether concurrent claims and completions are executed in [batches](#group-commit); the
    /// default is `true`.
    #[must_use]
    pub fn group_commit(self, enabled: bool) -> Self {
        let alone = if enabled { ALONE } else { usize::MAX };
        let limits = self.groups.limits();
        self.with_limits(GroupCommitLimits { alone, ..limits })
    }

    /// Sets the largest number of steps in a [batch](#group-commit); the default is 64.
    #[must_use]
    pub fn max_batch_steps(self, steps: NonZeroU16) -> Self {
        let limits = self.groups.limits();
        self.with_limits(GroupCommitLimits { steps, ..limits })
    }

    /// Sets about how many bytes a [batch](#group-commit) sends, unless a single step is larger,
    /// and how many bytes of recordings it returns; the default is 1 MiB. The process and the
    /// server each have a whole batch in memory.
    #[must_use]
    pub fn max_batch_bytes(self, bytes: NonZeroUsize) -> Self {
        let limits = self.groups.limits();
        self.with_limits(GroupCommitLimits { bytes, ..limits })
    }

    pub(crate) fn with_limits(self, limits: GroupCommitLimits) -> Self {
        Self { groups: Arc::new(Groups::new(limits)), ..self }
    }
}

impl PostgresStore {
    /// Claims alone or in a batch. A batch settles claims of new keys, and claims that change
    /// nothing; any other is then executed alone.
    pub(crate) async fn claim_in_turn(
        &self,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<ClaimOutcome, StoreError> {
        let step = || ClaimStep { id: *id, claim: claim.clone() };
        let start = |batches| spawn(self.clone().execute_claims(batches));
        match self.groups.claims.turn(step, start).await {
            Turn::Alone(turn) => self.claim_with_retries(id, claim, turn.repeated).await,
            Turn::Done(Ok(outcome)) => Ok(outcome),
            Turn::Done(Err(failure)) => Err(self.store_error("claim", failure.into())),
            Turn::TimedOut => Err(self.store_error("claim", sqlx::Error::PoolTimedOut)),
        }
    }

    /// Completes alone or in a batch. A completion that a batch did not find to be the owner's is
    /// then executed alone.
    pub(crate) async fn complete_in_turn(
        &self,
        lease: &Lease,
        recording: &Bytes,
    ) -> Result<Fence, StoreError> {
        let completions = &self.groups.completions;
        let step = || CompletionStep { lease: *lease, recording: recording.clone() };
        let start = |batches| spawn(self.clone().execute_completions(batches));
        let turn = if recording.len() < LARGE_RECORDING {
            completions.turn(step, start).await
        } else {
            Turn::Alone(completions.turn_alone())
        };
        match turn {
            Turn::Alone(_turn) => {
                let statement = self.statements("complete").await?.complete(lease, recording);
                self.change("complete", statement, Resend::Always).await.map(fence)
            }
            Turn::Done(Ok(())) => Ok(Fence::Passed),
            Turn::Done(Err(failure)) => Err(self.store_error("complete", failure.into())),
            Turn::TimedOut => Err(self.store_error("complete", sqlx::Error::PoolTimedOut)),
        }
    }

    async fn execute_claims(self, mut batches: Batches<ClaimStep, Claimed>) {
        while let Some((connection, batch)) = batches.next(&self.pools.batches).await {
            let mut keys = BTreeMap::<_, ClaimsOfKey>::new();
            for (ClaimStep { id, claim }, reply) in batch {
                keys.entry(id).or_default().push((claim, reply));
            }
            match self.claim_keys(connection, &keys).await {
                Ok(found) => {
                    keys.into_iter().for_each(|(id, claims)| settle(claims, found.get(&id)))
                }
                Err(error) => {
                    let replies = keys.into_values().flatten().map(|(_, reply)| reply);
                    self.fail("claim", replies, &error);
                }
            }
        }
    }

    /// Executes the first claim of each key; returns what it found.
    async fn claim_keys(
        &self,
        connection: Result<PooledConnection<PgConnection>, sqlx::Error>,
        keys: &BTreeMap<RecordId, ClaimsOfKey>,
    ) -> Result<HashMap<RecordId, TimedRecord>, sqlx::Error> {
        let firsts = keys.iter().filter_map(|(id, claims)| Some((id, &claims.first()?.0)));
        let firsts: Vec<_> = firsts.collect();
        let fingerprints: Vec<_> =
            firsts.iter().map(|(_, claim)| claim.fingerprint.to_bytes()).collect();
        let bytes = self.groups.limits().bytes.get();
        let statements = self.try_statements().await?;
        let statement = statements.claim_batch(&firsts, &fingerprints, LARGE_RECORDING, bytes);
        let rows = self.execute_batch(connection?, &statement).await?;
        // A record without its recording, or that cannot be read, is left out: its claim is
        // executed alone.
        let found = |row| {
            Some((
                idempotent_sql::id_from_row(row).ok()?,
                idempotent_sql::claimed_from_row(row).ok()?,
            ))
        };
        Ok(rows.iter().filter_map(found).collect())
    }

    async fn execute_completions(self, mut batches: Batches<CompletionStep, Completed>) {
        while let Some((connection, batch)) = batches.next(&self.pools.batches).await {
            match self.complete_records(connection, &batch).await {
                Ok(completed) => {
                    for (CompletionStep { lease, .. }, reply) in batch {
                        let passed = completed.contains(&lease);
                        reply.send(if passed { InBatch::Done(Ok(())) } else { InBatch::Alone });
                    }
                }
                Err(error) => {
                    self.fail("complete", batch.into_iter().map(|(_, reply)| reply), &error);
                }
            }
        }
    }

    /// Returns the leases whose records were completed.
    async fn complete_records(
        &self,
        connection: Result<PooledConnection<PgConnection>, sqlx::Error>,
        batch: &Batch<CompletionStep, Completed>,
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        let completions = batch.iter().map(|(step, _)| (&step.lease, step.recording.as_ref()));
        let completions: Vec<_> = completions.collect();
        let statement = self.try_statements().await?.complete_batch(&completions);
        let rows = self.execute_batch(connection?, &statement).await?;
        // As for claims.
        Ok(rows.iter().filter_map(|row| idempotent_sql::lease_from_row(row).ok()).collect())
    }

    /// Replies to the steps of a batch that failed. They are executed alone, so that only those
    /// fail that are at fault, unless the server is known not to respond.
    fn fail<T>(
        &self,
        operation: &'static str,
        replies: impl Iterator<Item = Reply<Result<T, NoResponse>>>,
        error: &sqlx::Error,
    ) {
        let table = self.names().table.as_str();
        let down = no_response(error).filter(|failure| matches!(failure, NoResponse::Down));
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
