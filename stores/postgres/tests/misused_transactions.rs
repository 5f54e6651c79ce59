//! Handlers that misuse their transaction.

mod ended_by_handler;

use std::time::{Duration, Instant};

use idempotent_core::{
    Policy, RecordId, RecordState, Runtime, Store,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};
use idempotent_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row, postgres::PgPoolOptions};
use tokio::time::timeout;

use crate::helpers::sql;
use test_support::{
    cuts::{digest, id, recording, runtime},
    servers::{pgbouncer::PgBouncer, postgres::Postgres},
};

/// Writes the effect.
const EFFECT: &str = "INSERT INTO effects VALUES (:id)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimMode {
    /// The claim is committed before the transaction.
    Lease,
    /// The claim is part of the transaction.
    Transaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Effects and record are committed.
    Stored,
    /// Neither is committed.
    Neither,
    /// Either both are committed, or neither.
    Together,
    /// The handler has ended its transaction itself, and the key is held. In the store's own
    /// sessions its writes fail then; in others they are committed.
    Ended,
    /// The same, but its effect is committed in any session.
    Escaped,
}
use Expected::{Ended, Escaped, Neither, Stored, Together};

/// The statements that a handler sends, whatever the outcome of each.
const SCRIPTS: &[(&[&str], Expected)] = &[
    (&[EFFECT], Stored),
    (&["BEGIN", EFFECT], Stored),
    (&["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", EFFECT], Together),
    (&["SAVEPOINT one", EFFECT], Stored),
    (&["SAVEPOINT one", EFFECT, "RELEASE one"], Stored),
    (&["SAVEPOINT idempotent_effects", EFFECT], Stored),
    (&[EFFECT, "SAVEPOINT one", "SELECT 1 / 0", "ROLLBACK TO one"], Stored),
    (&[EFFECT, "SELECT pg_advisory_lock(42)", "CREATE TEMP TABLE mine (id int)"], Stored),
    // The connection stays open, unlike one with a temporary table.
    (&[EFFECT, "LISTEN changes"], Stored),
    (&[EFFECT, "SET SESSION lock_timeout = '1ms'", "SET SESSION work_mem = '1MB'"], Stored),
    (&[EFFECT, "SET LOCAL statement_timeout = '5s'"], Stored),
    (&[EFFECT, "ROLLBACK"], Ended),
    (&[EFFECT, "ROLLBACK", "BEGIN"], Ended),
    (&[EFFECT, "ROLLBACK", "BEGIN", "SAVEPOINT idempotent_effects"], Ended),
    (&[EFFECT, "ROLLBACK AND CHAIN"], Ended),
    (&[EFFECT, "ROLLBACK; BEGIN; SAVEPOINT idempotent_effects"], Ended),
    (&[EFFECT, "ROLLBACK", "DISCARD ALL"], Ended),
    (&[EFFECT, "ROLLBACK", "DISCARD ALL", "BEGIN"], Ended),
    (&[EFFECT, "RELEASE idempotent_effects"], Neither),
    (&[EFFECT, "DISCARD ALL"], Neither),
    (&[EFFECT, EFFECT], Neither),
    (&[EFFECT, "SELECT 1 / 0"], Neither),
    (&[EFFECT, "INSERT INTO later VALUES (1), (1)"], Neither),
    (&[EFFECT, "SELECT pg_cancel_backend(pg_backend_pid())"], Neither),
    (&[EFFECT, "SELECT pg_terminate_backend(pg_backend_pid())"], Neither),
    (&[EFFECT, "SET LOCAL statement_timeout = '1ms'", "SELECT pg_sleep(1)"], Neither),
    (&[EFFECT, "SET TRANSACTION READ ONLY"], Neither),
    (&["SET TRANSACTION READ ONLY", EFFECT], Neither),
    (&[EFFECT, "SET SESSION search_path = nowhere"], Together),
    (&[EFFECT, "SET ROLE pg_monitor"], Together),
    (&[EFFECT, "SET SESSION statement_timeout = '1ms'"], Together),
    (&[EFFECT, "SET SESSION default_transaction_read_only = on"], Together),
    (&[EFFECT, "DEALLOCATE ALL"], Together),
    (&[EFFECT, "CREATE TEMP TABLE idempotency_records (id bytea)"], Together),
    (
        &[EFFECT, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
        Together,
    ),
    (&[EFFECT, "RESET ALL"], Together),
    (&[EFFECT, "CLOSE ALL"], Together),
    (&[EFFECT, "COMMIT"], Ended),
    (&[EFFECT, "END"], Ended),
    (&[EFFECT, "COMMIT", "BEGIN"], Ended),
    (&[EFFECT, "COMMIT AND CHAIN"], Ended),
    (&[EFFECT, "RESET ALL", "COMMIT"], Ended),
    (&[EFFECT, "SAVEPOINT one", "COMMIT"], Ended),
    (&[EFFECT, "ROLLBACK TO idempotent_effects", "COMMIT"], Ended),
    // Nothing is left that the server could refuse.
    (&[EFFECT, "CLOSE ALL", "COMMIT"], Escaped),
    (&[EFFECT, "CLOSE ALL", "COMMIT AND CHAIN"], Escaped),
    (&["ROLLBACK AND CHAIN", EFFECT], Ended),
    (&["ROLLBACK AND CHAIN", EFFECT, "COMMIT"], Escaped),
    (&["ROLLBACK AND CHAIN; INSERT INTO effects VALUES (:id); COMMIT"], Escaped),
    (&["ROLLBACK AND CHAIN", EFFECT, "COMMIT AND CHAIN", "SELECT 1 / 0"], Escaped),
    (&["ROLLBACK", "BEGIN READ WRITE", EFFECT, "COMMIT"], Escaped),
    (&["ROLLBACK", "SET default_transaction_read_only = off", EFFECT], Escaped),
    (&["COMMIT", EFFECT], Ended),
    (&["ROLLBACK", EFFECT], Ended),
    (&["ROLLBACK", EFFECT, "BEGIN", "SAVEPOINT idempotent_effects"], Ended),
    (&["ROLLBACK", EFFECT, "BEGIN", "SELECT 1 / 0"], Ended),
    (&["ROLLBACK; BEGIN", EFFECT, "COMMIT"], Ended),
    (&["RESET ALL", "ROLLBACK", EFFECT], Ended),
    // Another session may commit the prepared transaction later.
    (&[EFFECT, "PREPARE TRANSACTION ':name'"], Ended),
];

const SCHEMA: &str = "CREATE TABLE effects (id bytea PRIMARY KEY);
    CREATE TABLE later (number int UNIQUE DEFERRABLE INITIALLY DEFERRED);";

struct Fixture {
    runtime: Runtime,
    store: PostgresStore,
    /// Connects to the server without a pooler.
    pool: PgPool,
    mode: ClaimMode,
    /// Whether the next handler's session must be checked for changes. Not where the application or
    /// the pooler resets the sessions.
    check_sessions: bool,
}

impl Fixture {
    /// A store with its own connections.
    async fn new(server: &Postgres, mode: ClaimMode) -> Self {
        let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
        let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
        Self { runtime: runtime(store.clone()), store, pool, mode, check_sessions: true }
    }

    async fn run_script(&self, script: &[&str], expected: Expected) {
        let (id, started) = (id(), Instant::now());
        let Admission::Proceed(attempt) = self.begin(id).await else {
            panic!("{script:?}: the claim of a new key was rejected")
        };
        let attempt = self.work(attempt, script).await;
        let ending = timeout(Duration::from_secs(30), attempt.complete(&recording()))
            .await
            .expect("the completion hangs");
        let (effects, state) = self.effects_and_state(&id).await;
        let context =
            format!("{:?}, {script:?}: {ending:?}, {effects} effects, {state:?}", self.mode);
        let completed = matches!(state, Some(RecordState::Completed(_)));
        let expected = if expected == Together && completed { Stored } else { expected };
        match expected {
            Stored => {
                assert!(ending == AttemptOutcome::Stored && completed && effects == 1, "{context}")
            }
            Neither | Together => {
                assert!(ending != AttemptOutcome::Stored && !completed && effects == 0, "{context}")
            }
            Ended | Escaped => {
                assert_eq!(ending, AttemptOutcome::Held, "{context}");
                assert!(matches!(state, Some(RecordState::Held)), "{context}");
                assert!(effects == 0 || expected == Escaped || self.may_write(), "{context}");
                assert!(effects == 1 || expected == Ended, "{context}");
            }
        }
        self.retry(id, &context, expected).await;
        if self.check_sessions {
            self.assert_clean_sessions(&context).await;
        }
        println!("{:?} {context}", started.elapsed());
    }

    /// Whether a handler can write after its transaction.
    fn may_write(&self) -> bool {
        !self.check_sessions
    }

    async fn begin(&self, id: RecordId) -> Admission {
        let begun = match self.mode {
            ClaimMode::Lease => self.runtime.begin(id, digest(), &Policy::DEFAULT).await,
            ClaimMode::Transaction => {
                self.runtime.begin_in_transaction(id, digest(), &Policy::DEFAULT).await
            }
        };
        begun.unwrap()
    }

    async fn work(&self, mut attempt: Attempt, script: &[&str]) -> Attempt {
        if self.mode == ClaimMode::Lease {
            attempt.begin_transaction().await.unwrap();
        }
        let mut transaction = attempt.take_transaction().unwrap();
        let connection = transaction.connection_mut().downcast_mut::<PgConnection>().unwrap();
        let literal =
            attempt.id().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for statement in script {
            let text =
                statement.replace(":id", &format!("'\\x{literal}'")).replace(":name", &literal);
            // The handler ignores the error.
            let _ = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection).await;
        }
        attempt.return_transaction(transaction);
        attempt
    }

    async fn effects_and_state(&self, id: &RecordId) -> (i64, Option<RecordState>) {
        let effects =
            sqlx::query("SELECT count(*) FROM effects WHERE id = $1").bind(&id.as_bytes()[..]);
        let effects = effects.fetch_one(&self.pool).await.unwrap().get(0);
        (effects, self.store.look_up(id).await.unwrap().map(|found| found.record.state))
    }

    /// Sends the request again. It must be replayed if it was stored, and otherwise run.
    async fn retry(&self, id: RecordId, context: &str, expected: Expected) {
        match (self.begin(id).await, expected) {
            (Admission::Rejected(Verdict::Rejected(Rejection::Completed(kept))), Stored) => {
                assert_eq!(kept, recording(), "{context}")
            }
            (Admission::Proceed(attempt), Neither | Together) => {
                let attempt = self.work(attempt, &[EFFECT]).await;
                assert_eq!(
                    attempt.complete(&recording()).await,
                    AttemptOutcome::Stored,
                    "{context}"
                );
                let (effects, state) = self.effects_and_state(&id).await;
                assert!(
                    effects == 1 && matches!(state, Some(RecordState::Completed(_))),
                    "{context}"
                );
            }
            (Admission::Rejected(Verdict::Rejected(Rejection::Held { .. })), Ended | Escaped) => {}
            (verdict, _) => panic!("{context}: the retry got {verdict:?}"),
        }
    }

    /// Asserts that later handlers find a clean session, on each connection.
    async fn assert_clean_sessions(&self, context: &str) {
        self.assert_clean_sessions_except_for("*", context).await;
        // `LISTEN` takes effect when its transaction ends.
        self.assert_clean_sessions_except_for("", context).await;
    }

    /// `channels` is `"*"` to ignore the channels that the session listens to.
    async fn assert_clean_sessions_except_for(&self, channels: &str, context: &str) {
        let mut attempts = Vec::new();
        for _ in 0..3 {
            let Admission::Proceed(mut attempt) = self.begin(id()).await else {
                panic!("{context}: the next request does not run")
            };
            if self.mode == ClaimMode::Lease {
                attempt.begin_transaction().await.unwrap();
            }
            let mut transaction = attempt.take_transaction().unwrap();
            let connection = transaction.connection_mut().downcast_mut::<PgConnection>().unwrap();
            let settings = "SELECT concat_ws(' ', current_setting('search_path'), \
                current_setting('lock_timeout'), current_setting('statement_timeout'), \
                current_setting('default_transaction_read_only'), \
                current_setting('transaction_isolation'), current_user, \
                (SELECT string_agg(name, ',') FROM pg_listening_channels() AS name \
                WHERE $1 = ''), to_regclass('pg_temp.idempotency_records'))";
            let found: String =
                sqlx::query_scalar(settings).bind(channels).fetch_one(connection).await.unwrap();
            assert_eq!(found, "\"$user\", public 0 0 on read committed postgres", "{context}");
            attempt.return_transaction(transaction);
            attempts.push(attempt);
        }
        for attempt in attempts {
            assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{context}");
        }
    }
}

async fn run_all_scripts(server: &Postgres, store: PostgresStore, check_sessions: bool) {
    let url = server.url("postgres");
    let pool = PgPool::connect(&url).await.unwrap();
    for mode in [ClaimMode::Lease, ClaimMode::Transaction] {
        for (script, expected) in SCRIPTS {
            let (runtime, store, pool) = (runtime(store.clone()), store.clone(), pool.clone());
            Fixture { runtime, store, pool, mode, check_sessions }
                .run_script(script, *expected)
                .await;
        }
        let prepared = "SELECT count(*) FROM pg_prepared_xacts";
        let rows: i64 = sqlx::query_scalar(prepared).fetch_one(&pool).await.unwrap();
        assert_eq!(rows, 0);
    }
}

async fn server() -> Postgres {
    let server = Postgres::start();
    sql(&server.url("postgres"), SCHEMA).await;
    let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    server
}

/// Fails if a record is completed without the effects of its handler, if the effects are committed
/// without the record, or if a handler's changes to its session reach the next handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_of_a_handler_separates_the_record_from_the_effects() {
    let server = server().await;
    let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
    run_all_scripts(&server, store, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_separates_the_record_from_the_effects_on_connections_of_the_application() {
    let server = server().await;
    // The application owns the sessions. Here it closes each after one handler.
    let pool = PgPoolOptions::new().after_release(|_, _| Box::pin(async { Ok(false) }));
    let store = PostgresStore::from_pool(pool.connect(&server.url("postgres")).await.unwrap())
        .await
        .unwrap();
    run_all_scripts(&server, store, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_separates_the_record_from_the_effects_behind_a_pooler() {
    let server = server().await;
    let pooler = PgBouncer::with_session_resets(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    assert!(format!("{store:?}").contains("Plain"), "{store:?}");
    run_all_scripts(&server, store, false).await;
}
