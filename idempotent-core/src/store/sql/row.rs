//! What a row says.

use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    lease::{Lease, OwnerToken},
    record::Record,
    record_id::RecordId,
    store::sql::{Unreadable, abandoned, fixed, length, state, time},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A record, and when it was read.
pub(crate) type Read = (Option<Record>, Timestamp);

/// Reads the columns `now` and those of the table; whole numbers are 64 bits wide.
pub(crate) fn read<'r, R: Row>(row: &'r R) -> Result<Read, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let now = time("now", row.try_get("now")?)?;
    // Every column is declared NOT NULL but the recording, so a row without a state is a record that is not there.
    let Some(code) = row.try_get("state")? else {
        return Ok((None, now));
    };
    let bytes = |column| row.try_get::<Vec<u8>, _>(column);
    let record = Record {
        fingerprint: Fingerprint::from_bytes(fixed("fingerprint", &bytes("fingerprint")?)?),
        owner: OwnerToken::from_bytes(fixed("owner", &bytes("owner")?)?),
        attempt: u32::try_from(row.try_get::<i64, _>("attempt")?).map_err(|_| Unreadable { column: "attempt" })?,
        abandoned: abandoned(row.try_get("abandoned")?)?,
        lease: length("lease", row.try_get("lease")?)?,
        lease_until: time("lease_until", row.try_get("lease_until")?)?,
        first_seen: time("first_seen", row.try_get("first_seen")?)?,
        expires_at: time("expires_at", row.try_get("expires_at")?)?,
        state: state(code, row.try_get("recording")?)?,
    };
    Ok((Some(record), now))
}

/// A row of `renew`.
pub(crate) fn lease<'r, R: Row>(row: &'r R) -> Result<Lease, Error>
where
    &'static str: ColumnIndex<R>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let bytes = |column| row.try_get::<Vec<u8>, _>(column);
    Ok(Lease {
        id: RecordId::from_bytes(fixed("id", &bytes("id")?)?),
        owner: OwnerToken::from_bytes(fixed("owner", &bytes("owner")?)?),
    })
}
