//! The statements for batches.

use sqlx::SqlStr;

use crate::sql::names::lock_bits;
use idempotent_core::{Fingerprint, Lease, RecordId, protocol::Claim};
use idempotent_sql::{
    statement::{Statement, Value},
    steps::{abandoned_code, sql_millis, status_code},
};

/// The step `claim` for many keys, no key twice; the fingerprints are those of the claims.
/// Recordings from the size `large` on are not returned, and of the others only as many as have
/// `bytes` in all.
pub(crate) fn claim_batch<'a>(
    text: &'a SqlStr,
    claims: &[(&'a RecordId, &'a Claim)],
    fingerprints: &'a [[u8; Fingerprint::BYTES]],
    large: usize,
    bytes: usize,
) -> Statement<'a> {
    let mut values = claim_arrays(claims, fingerprints);
    values.push(Value::Ints(claims.iter().map(|(id, _)| lock_bits(id)).collect()));
    values.extend([large, bytes].map(|size| Value::Int(size.try_into().unwrap_or(i64::MAX))));
    Statement::confidential(text, values)
}

/// The step `complete` for many records, none twice.
pub(crate) fn complete_batch<'a>(
    text: &'a SqlStr,
    completions: &[(&'a Lease, &'a [u8])],
) -> Statement<'a> {
    let arrays = |of: fn(&(&'a Lease, &'a [u8])) -> &'a [u8]| {
        Value::ByteArrays(completions.iter().map(of).collect())
    };
    let statuses = completions.iter().map(|(_, recording)| status_code(recording)).collect();
    let values = vec![
        arrays(|(lease, _)| lease.id.as_bytes()),
        arrays(|(lease, _)| lease.owner.as_bytes()),
        arrays(|(_, recording)| recording),
        Value::Ints(statuses),
    ];
    Statement::confidential(text, values)
}

/// The values of the claims, but for their locks.
fn claim_arrays<'a>(
    claims: &[(&'a RecordId, &'a Claim)],
    fingerprints: &'a [[u8; Fingerprint::BYTES]],
) -> Vec<Value<'a>> {
    let arrays = |of: fn(&'a RecordId, &'a Claim) -> &'a [u8]| {
        Value::ByteArrays(claims.iter().map(|(id, claim)| of(id, claim)).collect())
    };
    let ints =
        |of: fn(&Claim) -> i64| Value::Ints(claims.iter().map(|(_, claim)| of(claim)).collect());
    vec![
        arrays(|id, _| id.as_bytes()),
        Value::ByteArrays(fingerprints.iter().map(<[u8; _]>::as_slice).collect()),
        arrays(|_, claim| claim.owner.as_bytes()),
        ints(|claim| sql_millis(claim.lease)),
        ints(|claim| sql_millis(claim.ttl)),
        ints(|claim| abandoned_code(claim.abandoned)),
        arrays(|_, claim| claim.operation.as_bytes()),
        arrays(|_, claim| claim.principal.as_ref().map_or(&[], |principal| principal.as_bytes())),
    ]
}
