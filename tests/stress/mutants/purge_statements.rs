//! The statements of a purge, each on every kind of record.

use std::time::Duration;

use bytes::Bytes;

use super::{
    Variant,
    backends::Backend,
    interleavings::table::{self, Database, Row, values},
    read,
};
use idempotent_core::{
    Abandoned::{Hold, Retry},
    Fingerprint, OwnerToken, Record, RecordState,
    clock::Timestamp,
    transition::{Change, Event, transition},
};

const NOW: Timestamp = Timestamp::from_millis(1_000);
const LEASE: Duration = Duration::from_millis(20);
/// Leases that have expired, that run, and that are longer than their length because the clock was
/// set back.
const LEASES: [u64; 5] = [0, 1_000, 1_010, 1_021, 1_500];
/// The time of the statements that change what others have found. A lease that was longer than its
/// length at [`NOW`] may not be so any more.
#[cfg(feature = "mysql")]
const LATER: Timestamp = Timestamp::from_millis(1_005);
/// Ends of the ttl, which has passed or not.
const EXPIRIES: [u64; 3] = [900, 1_000, 1_001];

/// A record of every kind.
fn records() -> Vec<Record> {
    let states = [
        RecordState::InFlight,
        RecordState::Held,
        RecordState::Completed(Bytes::from_static(b"a")),
    ];
    let mut records = Vec::new();
    for state in states {
        for (abandoned, lease_until) in
            [Retry, Hold].into_iter().flat_map(|policy| LEASES.map(|at| (policy, at)))
        {
            for expires_at in EXPIRIES {
                let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
                let [first_seen, expires_at] = [1, expires_at].map(Timestamp::from_millis);
                let owner = OwnerToken::from_bytes([8; 16]);
                let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
                record.lease = LEASE;
                record.lease_until = Timestamp::from_millis(lease_until);
                record.abandoned = abandoned;
                record.state = state.clone();
                records.push(record);
            }
        }
    }
    records
}

/// What a statement must make of a record; `None` if it must remove the record.
fn expected(file: &str, record: &Record, kept: bool, changed_at: Timestamp) -> Option<Row> {
    let change = transition(Some(record), &Event::Purge, NOW).0;
    let later = transition(Some(record), &Event::Purge, changed_at).0;
    let never_purged = match record.state {
        RecordState::InFlight => record.abandoned == Hold,
        RecordState::Held => true,
        RecordState::Completed(_) => false,
    };
    let unchanged = Row { touched: false, kept, values: values(record) };
    let change = if matches!(change, Change::Put(_)) { later } else { change };
    match (file, change) {
        // A marked record is not in the index that a purge reads.
        _ if kept => Some(unchanged),
        ("purge.sql", Change::Remove) => None,
        ("shorten_expired.sql", Change::Put(shortened)) => {
            Some(Row { touched: true, values: values(&shortened), ..unchanged })
        }
        ("keep.sql", _) if never_purged && record.expires_at <= NOW => {
            Some(Row { touched: true, kept: true, ..unchanged })
        }
        _ => Some(unchanged),
    }
}

/// The statement with its parameters, or the two of MySQL, and the time at which it changes
/// records. It marks what it updates.
fn statements(
    file: &str,
    backend: &Backend,
    variant: Variant,
    database: &Database,
) -> (table::Change, Timestamp) {
    let statement = |file: &str, now: Timestamp| {
        variant
            .alter(file, &read(backend.folder(), file))
            .replace("{now}", &now.as_millis().to_string())
            .replace("{table}", database.table())
            .replace("{schema}", "")
            .replacen("SET ", "SET touched = 1, ", 1)
    };
    let with_values = |text: &str| {
        ["?1", "?2", "$1"]
            .iter()
            .fold(text.to_owned(), |text, value| text.replace(value, &NOW.as_millis().to_string()))
    };
    let found = with_values(&statement(file, NOW));
    #[cfg(feature = "mysql")]
    if matches!(backend, Backend::MySql { .. }) {
        let change = match file {
            "purge.sql" => "delete_locked.sql",
            "keep.sql" => "keep_locked.sql",
            _ => "shorten_locked.sql",
        };
        return (table::Change::of_those(found, statement(change, LATER)), LATER);
    }
    (table::Change::of_all(found), NOW)
}

/// A record that one of the statements treats incorrectly, if there is one.
pub(super) async fn incorrect_change(backend: &Backend, variant: Variant) -> Option<String> {
    let database = Database::new(backend).await;
    let (records, mut changed) = (records(), 0);
    for file in ["purge.sql", "shorten_expired.sql", "keep.sql"] {
        let (change, changed_at) = statements(file, backend, variant, &database);
        for kept in [false, true] {
            database.fill(&records).await;
            if kept {
                database.execute(format!("UPDATE {} SET kept = 1", database.table())).await;
            }
            let rows = match database.rows_after(&change).await {
                Ok(rows) => rows,
                Err(error) => return Some(error.to_string()),
            };
            for (at, record) in records.iter().enumerate() {
                let (expected, row) = (expected(file, record, kept, changed_at), rows.get(&at));
                if row != expected.as_ref() {
                    return Some(format!(
                        "{file} makes {row:?} of {record:?} (kept: {kept}), not {expected:?}"
                    ));
                }
                changed += usize::from(row.is_none_or(|row| row.touched));
            }
        }
    }
    assert!(changed > 20, "only {changed} records were changed");
    None
}
