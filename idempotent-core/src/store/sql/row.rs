//! Decoding of rows.

use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    lease::{Lease, OwnerToken},
    record::Record,
    record_id::RecordId,
    store::sql::{
        UnreadableColumn, abandoned_from_code, duration, fixed_bytes, state_from_code, timestamp,
    },
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A record, and the time at which it was read.
pub(crate) type TimedRecord = (Option<Record>, Timestamp);

/// Decodes the column `now` and those of the table; integers are 64 bits wide.
pub(crate) fn record_from_row<'r, R: Row>(row: &'r R) -> Result<TimedRecord, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let now = timestamp("now", row.try_get("now")?)?;
    // Every column but the recording is declared NOT NULL, so a row without a state means that
    // there is no record.
    let Some(code) = row.try_get("state")? else {
        return Ok((None, now));
    };
    let bytes = |column| row.try_get::<Vec<u8>, _>(column);
    let record = Record {
        fingerprint: Fingerprint::from_bytes(fixed_bytes("fingerprint", &bytes("fingerprint")?)?),
        owner: OwnerToken::from_bytes(fixed_bytes("owner", &bytes("owner")?)?),
        attempt: u32::try_from(row.try_get::<i64, _>("attempt")?)
            .map_err(|_| UnreadableColumn { column: "attempt" })?,
        abandoned: abandoned_from_code(row.try_get("abandoned")?)?,
        lease: duration("lease", row.try_get("lease")?)?,
        lease_until: timestamp("lease_until", row.try_get("lease_until")?)?,
        first_seen: timestamp("first_seen", row.try_get("first_seen")?)?,
        expires_at: timestamp("expires_at", row.try_get("expires_at")?)?,
        state: state_from_code(code, row.try_get("recording")?)?,
    };
    Ok((Some(record), now))
}

/// Decodes a row of `renew.sql`.
pub(crate) fn lease_from_row<'r, R: Row>(row: &'r R) -> Result<Lease, Error>
where
    &'static str: ColumnIndex<R>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let bytes = |column| row.try_get::<Vec<u8>, _>(column);
    Ok(Lease {
        id: RecordId::from_bytes(fixed_bytes("id", &bytes("id")?)?),
        owner: OwnerToken::from_bytes(fixed_bytes("owner", &bytes("owner")?)?),
    })
}
