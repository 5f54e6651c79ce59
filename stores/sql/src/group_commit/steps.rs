//! The steps that the stores on a server execute in batches: first claims, and completions.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{Batch, GroupCommit, GroupCommitLimits, GroupedStep, InBatch, Reply};
use crate::{row::TimedRecord, server::NoResponse, table::TableName};
use idempotent_core::{
    Lease, RecordId,
    protocol::{Claim, ClaimOutcome},
    transition::{self, Change},
};

/// About how many bytes a step sends beside its recording.
const STEP_BYTES: usize = 256;

/// The steps of one table that can be executed in batches.
pub struct Groups {
    /// The claims.
    pub claims: Arc<GroupCommit<ClaimStep, Claimed>>,
    /// The completions.
    pub completions: Arc<GroupCommit<CompletionStep, Completed>>,
}

/// A claim of a key.
pub struct ClaimStep {
    /// The key's record.
    pub id: RecordId,
    /// The claim.
    pub claim: Claim,
}

/// A completion of a record.
pub struct CompletionStep {
    /// The record, and its owner.
    pub lease: Lease,
    /// The recording.
    pub recording: Bytes,
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
    /// The steps of a table, none of which is under way.
    pub fn new(limits: GroupCommitLimits) -> Self {
        Self { claims: GroupCommit::new(limits), completions: GroupCommit::new(limits) }
    }

    /// The limits of both.
    #[must_use]
    pub fn limits(&self) -> GroupCommitLimits {
        self.claims.limits()
    }
}

/// The outcome of a claim in a batch.
pub type Claimed = Result<ClaimOutcome, NoResponse>;
/// The outcome of a completion in a batch that has passed the fence.
pub type Completed = Result<(), NoResponse>;
/// The claims of one key in a batch.
pub type ClaimsOfKey = Vec<(Claim, Reply<Claimed>)>;

/// The claims of a batch by their keys.
pub fn by_key(batch: Batch<ClaimStep, Claimed>) -> BTreeMap<RecordId, ClaimsOfKey> {
    let mut keys = BTreeMap::<_, ClaimsOfKey>::new();
    for (ClaimStep { id, claim }, reply) in batch {
        keys.entry(id).or_default().push((claim, reply));
    }
    keys
}

/// Replies to the steps of a batch that failed. They are executed alone, so that only those fail
/// that are at fault, unless the server is known not to respond.
///
/// `unknown` says whether the batch may have taken effect.
pub fn fail<T>(
    (table, operation): (&TableName, &'static str),
    replies: impl Iterator<Item = Reply<Result<T, NoResponse>>>,
    error: &sqlx::Error,
    unknown: bool,
) {
    let table = table.as_str();
    let down = NoResponse::of(error).filter(|failure| matches!(failure, NoResponse::Down));
    if down.is_some() {
        tracing::debug!(table, operation, %error, "a batch failed, and its steps fail");
    } else {
        tracing::debug!(table, operation, %error, "a batch failed; executing its steps alone");
    }
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
pub fn settle(claims: ClaimsOfKey, found: Option<&TimedRecord>) {
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
