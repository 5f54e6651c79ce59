//! Decoding of rows.

use std::time::Duration;

use sqlx::{ColumnIndex, Decode, Row, Type};

use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, Principal, Record, RecordId, RecordState, ShortText,
    clock::Timestamp,
    protocol::{Fence, Snapshot},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A record, and the time at which it was read.
pub type TimedRecord = (Option<Record>, Timestamp);

/// Decodes the column `now` and those of the table; integers are 64 bits wide.
pub fn record_from_row<'r, R: Row>(row: &'r R) -> Result<TimedRecord, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let (record, now) = claimed_from_row(row)?;
    let Some(mut record) = record else {
        return Ok((None, now));
    };
    let optional_bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column);
    record.operation =
        text("operation", Some(row.try_get::<String, _>("operation")?))?.unwrap_or_default();
    record.principal = optional_bytes("principal")?
        .map(|bytes| fixed_bytes("principal", &bytes).map(Principal::from_bytes))
        .transpose()?;
    record.completed_at = row
        .try_get::<Option<i64>, _>("completed_at")?
        .map(|at| timestamp("completed_at", at))
        .transpose()?;
    record.status = row
        .try_get::<Option<i64>, _>("status")?
        .map(u16::try_from)
        .transpose()
        .map_err(|_| UnreadableColumn { column: "status" })?;
    record.notes.progress = text("progress", row.try_get("progress")?)?;
    record.notes.steps = optional_bytes("steps")?.unwrap_or_default().into();
    record.notes.input = optional_bytes("input")?.unwrap_or_default().into();
    Ok((Some(record), now))
}

/// Decodes the column `now` and those that a claim is decided from. Whom the record is about, its
/// end, and the notes other than the reference are left empty.
pub fn claimed_from_row<'r, R: Row>(row: &'r R) -> Result<TimedRecord, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let now = timestamp("now", row.try_get("now")?)?;
    // The column is declared NOT NULL, so a row without a state means that there is no record.
    let Some(code) = row.try_get("state")? else {
        return Ok((None, now));
    };
    let bytes = |column| row.try_get::<Vec<u8>, _>(column);
    let mut record = Record::new(
        Fingerprint::from_bytes(fixed_bytes("fingerprint", &bytes("fingerprint")?)?),
        OwnerToken::from_bytes(fixed_bytes("owner", &bytes("owner")?)?),
        timestamp("first_seen", row.try_get("first_seen")?)?,
        timestamp("expires_at", row.try_get("expires_at")?)?,
    );
    record.attempt = u32::try_from(row.try_get::<i64, _>("attempt")?)
        .map_err(|_| UnreadableColumn { column: "attempt" })?;
    record.abandoned = abandoned_from_code(row.try_get("abandoned")?)?;
    record.lease = duration("lease", row.try_get("lease")?)?;
    record.lease_until = timestamp("lease_until", row.try_get("lease_until")?)?;
    record.state = state_from_code(code, row.try_get("recording")?)?;
    record.notes.reference = text("reference", row.try_get("reference")?)?;
    Ok((Some(record), now))
}

fn text(
    column: &'static str,
    value: Option<String>,
) -> Result<Option<ShortText>, UnreadableColumn> {
    value.map(|text| ShortText::new(&text)).transpose().map_err(|_| UnreadableColumn { column })
}

/// Decodes a row of `resumable.sql`.
pub fn id_from_row<'r, R: Row>(row: &'r R) -> Result<RecordId, Error>
where
    &'static str: ColumnIndex<R>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    Ok(RecordId::from_bytes(fixed_bytes("id", &row.try_get::<Vec<u8>, _>("id")?)?))
}

/// Decodes a row of `renew.sql`.
pub fn lease_from_row<'r, R: Row>(row: &'r R) -> Result<Lease, Error>
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

/// What a lookup returns of a record.
pub fn snapshot((record, at): TimedRecord) -> Option<Snapshot> {
    record.filter(|record| !record.is_expired(at)).map(|record| Snapshot::new(record, at))
}

/// The outcome of a statement that compares the owner, from whether it changed a record.
pub fn fence(changed: bool) -> Fence {
    if changed { Fence::Passed } else { Fence::Fenced }
}

/// Decodes the column `abandoned`.
fn abandoned_from_code(code: i64) -> Result<Abandoned, UnreadableColumn> {
    match code {
        0 => Ok(Abandoned::Retry),
        1 => Ok(Abandoned::Hold),
        _ => Err(UnreadableColumn { column: "abandoned" }),
    }
}

/// Decodes the columns `state` and `recording`.
fn state_from_code(code: i64, recording: Option<Vec<u8>>) -> Result<RecordState, UnreadableColumn> {
    match (code, recording) {
        (1, None) => Ok(RecordState::InFlight),
        (2, Some(recording)) => Ok(RecordState::Completed(recording.into())),
        (3, None) => Ok(RecordState::Held),
        (1..=3, _) => Err(UnreadableColumn { column: "recording" }),
        _ => Err(UnreadableColumn { column: "state" }),
    }
}

/// Decodes a column of fixed length.
fn fixed_bytes<const N: usize>(
    column: &'static str,
    bytes: &[u8],
) -> Result<[u8; N], UnreadableColumn> {
    bytes.try_into().map_err(|_| UnreadableColumn { column })
}

/// Decodes a column that holds a time.
fn timestamp(column: &'static str, millis: i64) -> Result<Timestamp, UnreadableColumn> {
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| UnreadableColumn { column })
}

/// Decodes a column that holds a duration.
fn duration(column: &'static str, millis: i64) -> Result<Duration, UnreadableColumn> {
    u64::try_from(millis).map(Duration::from_millis).map_err(|_| UnreadableColumn { column })
}

/// A column holds a value that no version of this library writes. Its record is neither run again
/// nor replayed.
#[derive(Debug, thiserror::Error)]
#[error("the record's column `{column}` cannot be read")]
struct UnreadableColumn {
    column: &'static str,
}
