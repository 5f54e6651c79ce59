//! The statements that insert the record of a claim in a transaction.

use super::{Statements, bytes, fingerprint, principal};
use crate::sql::statement::{Statement, Value};
use idempotent_core::{RecordId, clock::Timestamp, protocol::Claim};
use idempotent_sql::{abandoned_code, sql_millis, status_code};

/// A claim in a transaction that has not written its record yet.
pub(crate) struct NewRecord {
    pub(crate) id: RecordId,
    pub(crate) claim: Claim,
    /// The time of the claim.
    pub(crate) at: Timestamp,
}

impl NewRecord {
    fn values(&self) -> Vec<Value<'_>> {
        let Self { id, claim, at } = self;
        vec![
            bytes(id.as_bytes()),
            fingerprint(claim),
            bytes(claim.owner.as_bytes()),
            Value::Int(sql_millis(claim.lease)),
            Value::Int(sql_millis(claim.ttl)),
            bytes(claim.operation.as_bytes()),
            bytes(principal(claim)),
            Value::Int(i64::try_from(at.as_millis()).unwrap_or(i64::MAX)),
        ]
    }
}

impl Statements {
    pub(crate) fn insert_in_transaction<'a>(
        &'a self,
        new: &'a NewRecord,
        token: i64,
    ) -> Statement<'a> {
        let mut values = new.values();
        values.push(Value::Int(token));
        Statement::confidential(&self.insert_in_transaction, values)
    }

    pub(crate) fn insert_completed_in_transaction<'a>(
        &'a self,
        new: &'a NewRecord,
        recording: &'a [u8],
        token: i64,
    ) -> Statement<'a> {
        let mut values = new.values();
        values.extend([
            Value::Int(abandoned_code(new.claim.abandoned)),
            bytes(recording),
            Value::Int(status_code(recording)),
            Value::Int(token),
        ]);
        Statement::confidential(&self.insert_completed_in_transaction, values)
    }
}
