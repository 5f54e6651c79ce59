//! What a row says.

use sqlx::{Row, sqlite::SqliteRow};

use crate::{
    clock::Timestamp,
    fingerprint::Fingerprint,
    lease::{Lease, OwnerToken},
    record::{Record, RecordId},
    store::sql::{Unreadable, abandoned, fixed, state, time},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A record, and when it was read.
pub(super) type Read = (Option<Record>, Timestamp);

pub(super) fn read(row: &SqliteRow) -> Result<Read, Error> {
    let now = time("now", row.try_get("now")?)?;
    // Every column is declared NOT NULL but the recording, so a row without a state is a record that is not there.
    let Some(code) = row.try_get("state")? else {
        return Ok((None, now));
    };
    let record = Record {
        fingerprint: Fingerprint::from_bytes(fixed("fingerprint", row.try_get("fingerprint")?)?),
        owner: OwnerToken::from_bytes(fixed("owner", row.try_get("owner")?)?),
        attempt: u32::try_from(row.try_get::<i64, _>("attempt")?).map_err(|_| Unreadable { column: "attempt" })?,
        abandoned: abandoned(row.try_get("abandoned")?)?,
        lease_until: time("lease_until", row.try_get("lease_until")?)?,
        first_seen: time("first_seen", row.try_get("first_seen")?)?,
        expires_at: time("expires_at", row.try_get("expires_at")?)?,
        state: state(code, row.try_get("recording")?)?,
    };
    Ok((Some(record), now))
}

/// A row of `renew`.
pub(super) fn lease(row: &SqliteRow) -> Result<Lease, Error> {
    Ok(Lease {
        id: RecordId::from_bytes(fixed("id", row.try_get("id")?)?),
        owner: OwnerToken::from_bytes(fixed("owner", row.try_get("owner")?)?),
    })
}
