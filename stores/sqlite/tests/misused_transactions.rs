//! Handlers that misuse their transaction, or whose transaction SQLite rolls back. Effects and
//! record must be committed together, or not at all.

use std::{fmt, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Digester, EncodedRecording, Key, Policy, RecordId, RecordState, RequestDigest, ScopeId,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
    store::Transaction,
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_sqlite::SqliteStore;
use sqlx::{
    AssertSqlSafe, Connection as _, SqliteConnection, SqlitePool, sqlite::SqliteJournalMode,
};

use self::cases::{CASES, Case, End, Step};
use test_support::subjects::sqlite::File;

mod cases;

const SCHEMA: &str = "CREATE TABLE effects (note text NOT NULL PRIMARY KEY, depends_on text \
    REFERENCES effects (note) DEFERRABLE INITIALLY DEFERRED);
    CREATE TABLE unique_notes (note text NOT NULL UNIQUE ON CONFLICT ROLLBACK);
    CREATE TABLE setup (note text NOT NULL);
    CREATE TRIGGER refuse BEFORE INSERT ON setup BEGIN SELECT raise(ROLLBACK, 'refused'); END;
    INSERT INTO unique_notes VALUES ('taken')";

/// A statement that takes a while and changes nothing.
const SLOW: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) \
    SELECT sum(i) FROM n";

/// Whether the claim is committed before the transaction (`Lease`) or is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimMode {
    Lease,
    Transaction,
}

/// Whose connections the store uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Own,
    Shared,
}

struct Fixture {
    runtime: Runtime,
    database: SqlitePool,
    mode: ClaimMode,
    _file: File,
}

impl Fixture {
    async fn new(pool: Pool, mode: ClaimMode) -> Self {
        let file = File::new();
        let store = match pool {
            Pool::Own => file.open().await,
            Pool::Shared => {
                let options = file.options().journal_mode(SqliteJournalMode::Wal);
                let shared =
                    sqlx::sqlite::SqlitePoolOptions::new().max_connections(2).connect_with(options);
                SqliteStore::from_pool(shared.await.unwrap()).await.unwrap()
            }
        };
        store.migrate().await.unwrap();
        let database = file.pool().await;
        sqlx::raw_sql(SCHEMA).execute(&database).await.unwrap();
        let runtime = Runtime::new(store, RuntimeOptions::default());
        Self { runtime, database, mode, _file: file }
    }

    async fn begin(&self, id: RecordId) -> Admission {
        match self.mode {
            ClaimMode::Transaction => {
                self.runtime.begin_in_transaction(id, digest(), &Policy::DEFAULT).await.unwrap()
            }
            ClaimMode::Lease => {
                match self.runtime.begin(id, digest(), &Policy::DEFAULT).await.unwrap() {
                    Admission::Proceed(mut attempt) => {
                        attempt.begin_transaction().await.unwrap();
                        Admission::Proceed(attempt)
                    }
                    verdict @ Admission::Rejected(_) => verdict,
                }
            }
        }
    }

    /// The notes of all effects, in order.
    async fn effects(&self) -> Vec<String> {
        let notes = "SELECT note FROM effects \
            UNION ALL SELECT note FROM unique_notes WHERE note <> 'taken' ORDER BY note";
        sqlx::query_scalar(notes).fetch_all(&self.database).await.unwrap()
    }

    async fn is_completed(&self, id: &RecordId) -> bool {
        let found = self.runtime.look_up(id).await.unwrap();
        found.is_some_and(|found| matches!(found.record.state, RecordState::Completed(_)))
    }

    /// Runs a handler that executes one statement without errors.
    async fn run_correct_handler(&self, id: RecordId, note: &'static str) {
        let Admission::Proceed(mut attempt) = self.begin(id).await else {
            panic!("the claim was rejected")
        };
        run_handler(&mut attempt, &[Step::Sql(note)]).await;
        assert_eq!(attempt.complete(&response()).await, AttemptOutcome::Stored);
    }
}

fn id(key: &str) -> RecordId {
    RecordId::new("tests", &ScopeId::new("alice"), "POST /orders", &Key::from_text(key).unwrap())
}

fn digest() -> RequestDigest {
    Digester::new(["POST", "/orders"]).finish()
}

fn response() -> EncodedRecording {
    Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done"))).encode()
}

/// Runs a script in an attempt's transaction.
async fn run_handler(attempt: &mut Attempt, script: &[Step]) {
    let mut transaction = attempt.take_transaction().unwrap();
    run_script(&mut *transaction, script).await;
    attempt.return_transaction(transaction);
}

/// Runs a script like a handler that ignores errors.
async fn run_script(transaction: &mut dyn Transaction, script: &[Step]) {
    let connection: &mut SqliteConnection = transaction.connection_mut().downcast_mut().unwrap();
    for step in script {
        match *step {
            Step::Sql(text) => drop(sqlx::raw_sql(text).execute(&mut *connection).await),
            Step::Fails(text, reason) => {
                let error =
                    sqlx::raw_sql(text).execute(&mut *connection).await.unwrap_err().to_string();
                assert!(error.contains(reason), "{text}: {error}");
            }
            Step::DiskFull(text) => {
                let pages: i64 = sqlx::query_scalar("PRAGMA page_count")
                    .fetch_one(&mut *connection)
                    .await
                    .unwrap();
                let limit = AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
                sqlx::raw_sql(limit).execute(&mut *connection).await.unwrap();
                let error =
                    sqlx::raw_sql(text).execute(&mut *connection).await.unwrap_err().to_string();
                assert!(error.contains("full"), "{error}");
            }
            Step::Interrupted(text) => {
                connection.lock_handle().await.unwrap().set_progress_handler(50_000, || false);
                let error =
                    sqlx::raw_sql(text).execute(&mut *connection).await.unwrap_err().to_string();
                assert!(error.contains("interrupted"), "{error}");
                connection.lock_handle().await.unwrap().remove_progress_handler();
            }
            Step::Dropped(text) => {
                let call = sqlx::raw_sql(text).execute(&mut *connection);
                drop(tokio::time::timeout(Duration::ZERO, call).await);
            }
            Step::Nested(text) => {
                let mut nested = connection.begin().await.unwrap();
                sqlx::raw_sql(text).execute(&mut *nested).await.unwrap();
                // This keeps SQLite's thread busy, so that the rollback is still queued when the
                // handler returns.
                let call = sqlx::raw_sql(SLOW).execute(&mut *nested);
                let given_up = tokio::time::timeout(Duration::ZERO, call).await;
                assert!(given_up.is_err(), "{given_up:?}");
                drop(nested);
            }
            Step::RemoveHooks => {
                let mut handle = connection.lock_handle().await.unwrap();
                handle.remove_commit_hook();
                handle.remove_rollback_hook();
            }
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Runs a case, and checks what is committed and what a retry gets.
async fn check_case(case: &'static Case, pool: Pool, mode: ClaimMode) -> Result<(), String> {
    let fixture = Fixture::new(pool, mode).await;
    let Admission::Proceed(mut attempt) = fixture.begin(id("k")).await else {
        panic!("the claim was rejected")
    };
    run_handler(&mut attempt, case.script).await;
    let ending = match case.end {
        End::RolledBack(_) => attempt.complete_rolled_back(&response()).await,
        End::Committed(_) | End::Lost => attempt.complete(&response()).await,
    };
    let (completed, effects) = (fixture.is_completed(&id("k")).await, fixture.effects().await);
    let context = format!(
        "{case:?}, {pool:?}, {mode:?}: {ending:?}, completed: {completed}, effects: {effects:?}"
    );
    let expected: &[&str] = match case.end {
        End::Committed(effects) => effects,
        End::RolledBack(_) | End::Lost => &[],
    };
    let lost = matches!(case.end, End::Lost)
        || (case.end == End::RolledBack(true) && mode == ClaimMode::Transaction);
    if effects != expected || completed == lost || (ending == AttemptOutcome::Stored) == lost {
        return Err(context);
    }
    // The retry is replayed, or runs.
    match (fixture.begin(id("k")).await, lost) {
        (Admission::Rejected(Verdict::Rejected(Rejection::Completed(_))), false) => {}
        (Admission::Proceed(mut attempt), true) => {
            run_handler(&mut attempt, &[Step::Sql("INSERT INTO effects VALUES ('again', NULL)")])
                .await;
            let ending = attempt.complete(&response()).await;
            if ending != AttemptOutcome::Stored || fixture.effects().await != ["again"] {
                return Err(format!("{context}; then {ending:?}, {:?}", fixture.effects().await));
            }
        }
        (begun, _) => return Err(format!("{context}; then {begun:?}")),
    }
    // Later attempts on the same connections are not affected.
    for key in ["1", "2", "3"] {
        fixture
            .run_correct_handler(id(key), "INSERT INTO effects VALUES (hex(randomblob(8)), NULL)")
            .await;
    }
    let more = fixture.effects().await.len() - expected.len() - usize::from(lost);
    if more == 3 { Ok(()) } else { Err(format!("{context}; then {more} of 3")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_and_record_are_committed_together_whatever_the_handler_does() {
    let mut wrong = Vec::new();
    for case in CASES {
        for (pool, mode) in [
            (Pool::Own, ClaimMode::Lease),
            (Pool::Own, ClaimMode::Transaction),
            (Pool::Shared, ClaimMode::Lease),
            (Pool::Shared, ClaimMode::Transaction),
        ] {
            let judged = tokio::spawn(check_case(case, pool, mode)).await;
            let panicked = |error| Err(format!("{case:?}, {pool:?}, {mode:?}: {error}"));
            wrong.extend(judged.unwrap_or_else(panicked).err());
        }
    }
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_a_record_is_committed_as_a_whole_or_not_at_all() {
    let mut committed = 0;
    // With `query_only` the write of the record fails.
    for case in CASES.iter().filter(|case| case.name != "query_only") {
        for pool in [Pool::Own, Pool::Shared] {
            let fixture = Fixture::new(pool, ClaimMode::Lease).await;
            let mut transaction = fixture.runtime.transaction().await.unwrap();
            run_script(&mut *transaction, case.script).await;
            let expected: &[&str] = match case.end {
                End::Committed(effects) => effects,
                End::Lost | End::RolledBack(_) => &[],
            };
            if let End::RolledBack(_) = case.end {
                transaction.roll_back().await;
            } else {
                let ended = transaction.commit().await.is_ok();
                assert_eq!(ended, matches!(case.end, End::Committed(_)), "{case:?}, {pool:?}");
                committed += usize::from(ended);
            }
            assert_eq!(fixture.effects().await, expected, "{case:?}, {pool:?}");
            fixture
                .run_correct_handler(
                    id("1"),
                    "INSERT INTO effects VALUES (hex(randomblob(8)), NULL)",
                )
                .await;
        }
    }
    assert!(committed >= 20, "{committed}");
}

/// Whether the only connection of a pool is still the one that the application has marked with a
/// temporary table.
async fn is_marked(pool: &SqlitePool) -> bool {
    sqlx::query("SELECT * FROM temp.mark").fetch_all(pool).await.is_ok()
}

#[tokio::test]
async fn a_shared_connection_is_returned_unchanged_or_closed() {
    let file = File::new();
    let options = file
        .options()
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_millis(1234));
    let pool = sqlx::sqlite::SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .unwrap();
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    sqlx::raw_sql(SCHEMA).execute(&pool).await.unwrap();
    sqlx::raw_sql("CREATE TEMP TABLE mark (note)").execute(&pool).await.unwrap();
    let fixture = Fixture {
        runtime: Runtime::new(store, RuntimeOptions::default()),
        database: pool.clone(),
        mode: ClaimMode::Transaction,
        _file: file,
    };
    for key in ["1", "2"] {
        fixture
            .run_correct_handler(id(key), "INSERT INTO effects VALUES (hex(randomblob(8)), NULL)")
            .await;
        let timeout: i64 =
            sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&pool).await.unwrap();
        assert_eq!((timeout, is_marked(&pool).await), (1234, true));
        // A commit hook that the store had left behind would refuse this commit.
        sqlx::raw_sql("BEGIN; INSERT INTO unique_notes VALUES (hex(randomblob(8))); COMMIT")
            .execute(&pool)
            .await
            .unwrap();
    }
    fixture.run_correct_handler(id("3"), "CREATE TEMP TABLE left_behind (note)").await;
    assert!(!is_marked(&pool).await);
}
