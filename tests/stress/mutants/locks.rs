//! Which records the statements of MySQL return and lock that find records for another statement of
//! the same transaction. Records that another transaction has locked are skipped.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

use super::{
    Variant,
    backends::Backend,
    interleavings::table::{Database, id_at},
    read,
};
use crate::effects::hex;
use idempotent_core::{Abandoned, Fingerprint, OwnerToken, Record, RecordState, clock::Timestamp};

const NOW: u64 = 1_000;
const LEASE: Duration = Duration::from_millis(20);
/// `LOCK_WAIT_TIMEOUT`.
const LOCKED: u16 = 1205;
/// Like the store's own sessions that skip locked records. With a time limit of 0, the server would
/// roll back their transactions.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                       SET SESSION innodb_lock_wait_timeout = 1; START TRANSACTION";

/// What a statement is tried on: two records that it finds, of which another transaction has
/// locked the second one, and two that it does not find; it need not even read the last one.
/// Statements for several ids get those of the first three.
struct Try {
    file: &'static str,
    records: [Record; 4],
    /// How many records it returns.
    returned: usize,
    /// Whether it locks the first record.
    locks: bool,
}

fn record(state: RecordState, lease_until: u64, expires_at: u64) -> Record {
    let [first_seen, lease_until, expires_at] =
        [1, lease_until, expires_at].map(Timestamp::from_millis);
    let (fingerprint, owner) =
        (Fingerprint::from_bytes([7; Fingerprint::BYTES]), OwnerToken::from_bytes([8; 16]));
    let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
    (record.state, record.abandoned) = (state, Abandoned::Retry);
    (record.lease, record.lease_until) = (LEASE, lease_until);
    record
}

fn tries() -> [Try; 7] {
    let [in_flight, held] = [RecordState::InFlight, RecordState::Held];
    let completed = RecordState::Completed(bytes::Bytes::from_static(b"a"));
    let two_of = |found: Record, others: [Record; 2]| {
        let [third, fourth] = others;
        [found.clone(), found, third, fourth]
    };
    let find = |file, found, others| Try {
        file,
        records: two_of(found, others),
        returned: 1,
        locks: true,
    };
    let by_id = |file, returned, locks| {
        let working = record(in_flight.clone(), 2_000, 2_000);
        let others = [record(completed.clone(), 0, 2_000), working.clone()];
        Try { file, records: two_of(working, others), returned, locks }
    };
    let expired_lease = record(in_flight.clone(), 0, 900);
    let long = record(in_flight.clone(), 9_000, 900);
    [
        find(
            "purge.sql",
            record(completed.clone(), 0, 900),
            [record(held.clone(), 0, 900), record(completed.clone(), 0, 2_000)],
        ),
        find(
            "keep.sql",
            record(held.clone(), 0, 900),
            [record(completed.clone(), 0, 900), record(held.clone(), 0, 2_000)],
        ),
        find("shorten_expired.sql", long, [expired_lease, record(in_flight.clone(), 9_000, 2_000)]),
        by_id("renew.sql", 1, true),
        by_id("owners.sql", 2, false),
        by_id("existing_batch.sql", 3, false),
        by_id("before.sql", 1, true),
    ]
}

/// What is wrong with the records that one of the statements returns or locks.
pub(super) async fn difference(backend: &Backend, variant: Variant) -> Option<String> {
    let Backend::MySql { url, .. } = backend else { return None };
    let database = Database::new(backend).await;
    let mut wrong = None;
    for tried in tries() {
        database.fill(&tried.records).await;
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let mut session = MySqlConnection::connect(url).await.unwrap();
            sqlx::raw_sql(SESSION).execute(&mut session).await.unwrap();
            sessions.push(session);
        }
        let text = variant.alter(tried.file, &read(backend.folder(), tried.file));
        wrong = wrong.or(tried.difference(&text, database.table(), &mut sessions).await);
        for session in sessions {
            session.close().await.unwrap();
        }
    }
    wrong
}

impl Try {
    async fn difference(
        &self,
        text: &str,
        table: &str,
        sessions: &mut [MySqlConnection],
    ) -> Option<String> {
        let [other, own, third] = sessions else { unreachable!("there are three sessions") };
        let id = |at| format!("x'{}'", hex(&id_at(at)));
        let lock = format!("SELECT id FROM {table} WHERE id = {} FOR UPDATE", id(1));
        assert_eq!(ids(other, lock).await.unwrap().len(), 1);
        let statement = text
            .replace("{each,:?1}", &[0, 1, 2].map(id).join(", "))
            .replace("{now}", &NOW.to_string())
            .replace("{table}", table)
            .replace("{schema}", "");
        let statement = match self.file {
            "before.sql" => statement.replace("?1", &id(0)),
            _ => statement.replace("?1", &NOW.to_string()).replace("?2", &NOW.to_string()),
        };
        let rows = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_all(own).await;
        let returned = match rows {
            Ok(rows) => rows.len(),
            Err(error) if is_locked(&error) => {
                return Some(format!("{} waits for the lock of another record", self.file));
            }
            Err(error) => return Some(error.to_string()),
        };
        let free = format!("SELECT id FROM {table} ORDER BY id FOR UPDATE SKIP LOCKED");
        let free = ids(third, free).await.unwrap();
        let is_free = |at| free.contains(&id_at(at).to_vec());
        if returned != self.returned || is_free(0) == self.locks || !is_free(3) {
            let file = self.file;
            return Some(format!("{file} returns {returned} records and leaves {free:?} unlocked"));
        }
        None
    }
}

async fn ids(session: &mut MySqlConnection, select: String) -> Result<Vec<Vec<u8>>, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(select)).fetch_all(session).await
}

fn is_locked(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == LOCKED)
}
