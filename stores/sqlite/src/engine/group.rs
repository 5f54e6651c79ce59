//! The writes that can be executed in one transaction.

use bytes::Bytes;
use sqlx::SqlStr;

use idempotent_core::{Lease, RecordId, protocol::Claim};
use idempotent_sql::{
    group_commit::{GroupCommit, GroupedStep},
    statement::Statement,
    steps::Steps,
};

/// How many steps are executed side by side before further ones are executed in batches. A file has
/// one writer.
pub(crate) const ALONE: usize = 1;
/// About how many bytes a step writes beside its recording.
const STEP_BYTES: usize = 256;

/// The writes of one table that can be executed in batches.
pub(crate) type Group = GroupCommit<WriteStep, Written>;
/// Whether a step in a batch has changed a record.
pub(crate) type Written = Result<bool, Locked>;

/// A write that can be executed in a batch.
#[derive(Clone)]
pub(crate) enum WriteStep {
    /// Claims a key that has no record, or whose record has expired.
    Claim(RecordId, Claim),
    Complete(Lease, Bytes),
}

/// The file stayed locked by another connection; nothing was executed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the file stayed locked by another connection")]
pub(crate) struct Locked;

impl GroupedStep for WriteStep {
    fn bytes(&self) -> usize {
        match self {
            Self::Claim(..) => STEP_BYTES,
            Self::Complete(_, recording) => STEP_BYTES + recording.len(),
        }
    }
}

impl WriteStep {
    pub(crate) fn statement<'a>(&'a self, steps: &'a Steps<SqlStr>) -> Statement<'a> {
        match self {
            Self::Claim(id, claim) => steps.claim(id, claim),
            Self::Complete(lease, recording) => steps.complete(lease, recording),
        }
    }
}
