//! Decoding of rows.

use std::time::Duration;

use sqlx::{ColumnIndex, Decode, Row, Type};

use idempotent_core::{
    Abandoned, Fingerprint, History, Lease, OwnerToken, Principal, Record, RecordId, RecordState,
    ShortText,
    clock::Timestamp,
    protocol::{Actor, AuditEntry, Audited, Fence, ListedRecord, RecordFilter, Snapshot},
};

/// The error of a row that cannot be decoded.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

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
    add_listed(row, &mut record)?;
    let bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column);
    record.notes.steps = bytes("steps")?.unwrap_or_default().into();
    record.notes.input = bytes("input")?.unwrap_or_default().into();
    Ok((Some(record), now))
}

/// What a row of a list is.
#[expect(clippy::large_enum_variant, reason = "a row is used at once, and never collected")]
pub(crate) enum ListRow {
    /// The list has no record.
    Empty,
    Record(ListedRecord),
    Unreadable(UnreadableRecord),
}

/// Decodes a row of a list: `now`, `id`, and the columns of the record other than its recording,
/// its steps and its input.
pub(crate) fn listed_from_row<'r, R: Row>(row: &'r R) -> Result<(ListRow, Timestamp), Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let now = timestamp("now", row.try_get("now")?)?;
    if row.try_get::<Option<Vec<u8>>, _>("id")?.is_none() {
        return Ok((ListRow::Empty, now));
    }
    let id = id_from_row(row)?;
    let listed = decided_from_row(row, listed_state).and_then(|(record, _)| {
        let mut record = record.ok_or(UnreadableColumn { column: "state" })?;
        add_listed(row, &mut record)?;
        Ok(ListedRecord::new(id, record))
    });
    let listed = match listed {
        Ok(listed) => ListRow::Record(listed),
        Err(source) => ListRow::Unreadable(UnreadableRecord { id, source }),
    };
    Ok((listed, now))
}

/// Returns whether none of the columns that can be read excludes a damaged record from a filter.
pub(crate) fn may_match<'r, R: Row>(row: &'r R, filter: &RecordFilter) -> bool
where
    &'static str: ColumnIndex<R>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let may_be = |column: &'static str, wanted: &Option<ShortText>| {
        let found = row.try_get::<Option<String>, _>(column);
        wanted.as_ref().is_none_or(|wanted| {
            found.map_or(true, |found| found.is_some_and(|found| found == wanted.as_str()))
        })
    };
    let principal = row.try_get("principal").map_err(Error::from).map(principal);
    let may_be_of = |wanted: &[Principal]| match principal {
        Ok(Ok(principal)) => principal.is_some_and(|principal| wanted.contains(&principal)),
        Ok(Err(_)) | Err(_) => true,
    };
    may_be("operation", &filter.operation)
        && may_be("reference", &filter.reference)
        && (filter.principals.is_empty() || may_be_of(&filter.principals))
}

/// Decodes the columns that a list shows and that a claim is not decided from.
fn add_listed<'r, R: Row>(row: &'r R, record: &mut Record) -> Result<(), Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    record.operation =
        text("operation", Some(row.try_get::<String, _>("operation")?))?.unwrap_or_default();
    record.principal = principal(row.try_get("principal")?)?;
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
    record.history = History::decode(&row.try_get::<String, _>("history")?)
        .map_err(|_| UnreadableColumn { column: "history" })?;
    Ok(())
}

/// Decodes an entry of the log of operators' decisions, and its number.
pub(crate) fn audited_from_row<'r, R: Row>(row: &'r R) -> Result<(Audited, u64), Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let required = |column| -> Result<String, Error> { Ok(row.try_get::<String, _>(column)?) };
    let [action, before, after] = [required("action")?, required("before")?, required("after")?];
    let id = fixed_bytes("record_id", &row.try_get::<Vec<u8>, _>("record_id")?)?;
    let actor = Actor::new(&required("actor")?, &required("reason")?);
    let mut entry =
        AuditEntry::new(action.parse()?, RecordId::from_bytes(id), before.parse()?, actor);
    entry.after = after.parse()?;
    entry.operation = text("operation", Some(required("operation")?))?.unwrap_or_default();
    let at = timestamp("at", row.try_get("at")?)?;
    Ok((Audited::new(entry, at), number_from_row(row, "number")?))
}

fn principal(bytes: Option<Vec<u8>>) -> Result<Option<Principal>, UnreadableColumn> {
    bytes.map(|bytes| fixed_bytes("principal", &bytes).map(Principal::from_bytes)).transpose()
}

/// Decodes the column `now` and those that a claim is decided from. Whom the record is about, its
/// end, its history, and the notes other than the reference are left empty.
pub fn claimed_from_row<'r, R: Row>(row: &'r R) -> Result<TimedRecord, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    decided_from_row(row, |code| state_from_code(code, row.try_get("recording")?))
}

/// Decodes the column `now` and those that a claim is decided from, with this decoder of the state.
fn decided_from_row<'r, R: Row>(
    row: &'r R,
    state: impl FnOnce(i64) -> Result<RecordState, Error>,
) -> Result<TimedRecord, Error>
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
    record.state = state(code)?;
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

/// Decodes a column that holds a number that is not negative.
pub(crate) fn number_from_row<'r, R: Row>(row: &'r R, column: &'static str) -> Result<u64, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).map_err(|_| UnreadableColumn { column })?)
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
fn state_from_code(code: i64, recording: Option<Vec<u8>>) -> Result<RecordState, Error> {
    match (code, recording) {
        (1, None) => Ok(RecordState::InFlight),
        (2, Some(recording)) => Ok(RecordState::Completed(recording.into())),
        (3, None) => Ok(RecordState::Held),
        (1..=3, _) => Err(UnreadableColumn { column: "recording" }.into()),
        _ => Err(UnreadableColumn { column: "state" }.into()),
    }
}

/// Decodes the column `state` of a row without the recording.
fn listed_state(code: i64) -> Result<RecordState, Error> {
    let recording = (code == 2).then(Vec::new);
    state_from_code(code, recording)
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

/// A record of a list cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the record {id} cannot be read")]
pub(crate) struct UnreadableRecord {
    pub(crate) id: RecordId,
    source: Error,
}
