//! The statements for batches.

use idempotent_core::{Lease, RecordId, clock::Timestamp, protocol::Claim};
use idempotent_sql::{
    statement::Value,
    steps::{claiming, first_values, status_code},
};

use crate::sql::positional::{Repeated, ids};

/// The statements for batches.
pub(crate) struct BatchStatements {
    pub(crate) existing: Repeated,
    pub(crate) claim: Repeated,
    pub(crate) complete: Repeated,
}

/// The values of `existing_batch.sql`: recordings from the size `large` on are not returned.
pub(crate) fn existing_values<'a>(
    large: usize,
    records: impl IntoIterator<Item = &'a RecordId>,
) -> Vec<Value<'a>> {
    let mut values = vec![Value::Int(large.try_into().unwrap_or(i64::MAX))];
    values.extend(ids(records));
    values
}

/// The values of `claim_batch.sql`.
pub(crate) fn claim_values<'a>(
    at: Timestamp,
    claims: &[(&'a RecordId, &'a Claim)],
) -> Vec<Value<'a>> {
    let mut values = vec![Value::Int(at.as_millis().try_into().unwrap_or(i64::MAX))];
    for (id, claim) in claims {
        values.extend(claiming(&(), id, claim).values);
        values.extend(first_values(claim, claim.abandoned));
    }
    values
}

/// The values of `complete_batch.sql`.
pub(crate) fn complete_values<'a>(completions: &[(&'a Lease, &'a [u8])]) -> Vec<Value<'a>> {
    let values = completions.iter().flat_map(|(lease, recording)| {
        [
            Value::bytes(lease.id.as_bytes()),
            Value::bytes(lease.owner.as_bytes()),
            Value::bytes(recording),
            Value::Int(status_code(recording)),
        ]
    });
    values.collect()
}
