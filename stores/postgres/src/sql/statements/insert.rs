//! The statements that insert the record of a claim in a transaction.

use sqlx::SqlStr;

use idempotent_core::{RecordId, clock::Timestamp, protocol::Claim};
use idempotent_sql::{
    statement::{Statement, Value},
    steps::{abandoned_code, claiming, first_values, status_code},
};

/// A claim in a transaction that has not written its record yet.
pub(crate) struct NewRecord {
    pub(crate) id: RecordId,
    pub(crate) claim: Claim,
    /// The time of the claim.
    pub(crate) at: Timestamp,
}

impl NewRecord {
    pub(super) fn insert<'a>(&'a self, text: &'a SqlStr) -> Statement<'a> {
        let Self { id, claim, at } = self;
        // The statement says what the policy is.
        let [ttl, _, operation, principal] = first_values(claim, claim.abandoned);
        let at = Value::Int(i64::try_from(at.as_millis()).unwrap_or(i64::MAX));
        claiming(text, id, claim).with_values([ttl, operation, principal, at])
    }

    pub(super) fn insert_completed<'a>(
        &'a self,
        text: &'a SqlStr,
        recording: &'a [u8],
    ) -> Statement<'a> {
        self.insert(text).with_values([
            Value::Int(abandoned_code(self.claim.abandoned)),
            Value::bytes(recording),
            Value::Int(status_code(recording)),
        ])
    }
}
