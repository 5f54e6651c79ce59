//! Handlers that misuse their transaction.

use std::time::{Duration, Instant};

use idempotent_core::{
    Abandoned, Policy, RecordId, RecordState, Runtime, Store,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
    store::postgres::PostgresStore,
};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row, postgres::PgPoolOptions};
use tokio::time::timeout;

use super::sql;
use test_support::{
    cuts::{digest, id, recording, runtime},
    servers::{pgbouncer::PgBouncer, postgres::Postgres},
};

/// Writes the effect.
const EFFECT: &str = "INSERT INTO effects VALUES (:id)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The claim is committed before the transaction.
    Leased,
    /// The claim is part of the transaction.
    Within,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Effects and record.
    Stored,
    /// Neither.
    Neither,
    /// Either both or neither.
    Together,
    /// The handler has committed its effects itself, which cannot be undone; no response is
    /// recorded.
    NotStored,
}
use Expected::{Neither, NotStored, Stored, Together};

/// What a handler sends, statement by statement, whatever the outcomes.
const SCRIPTS: &[(&[&str], Expected)] = &[
    (&[EFFECT], Stored),
    (&["BEGIN", EFFECT], Stored),
    (&["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", EFFECT], Together),
    (&["SAVEPOINT one", EFFECT], Stored),
    (&["SAVEPOINT one", EFFECT, "RELEASE one"], Stored),
    (&["SAVEPOINT idempotent_effects", EFFECT], Stored),
    (&[EFFECT, "SAVEPOINT one", "SELECT 1 / 0", "ROLLBACK TO one"], Stored),
    (
        &[
            EFFECT,
            "LISTEN changes",
            "SELECT pg_advisory_lock(42)",
            "CREATE TEMP TABLE mine (id int)",
        ],
        Stored,
    ),
    (&[EFFECT, "SET SESSION lock_timeout = '1ms'", "SET SESSION work_mem = '1MB'"], Stored),
    (&[EFFECT, "SET LOCAL statement_timeout = '5s'"], Stored),
    (&[EFFECT, "ROLLBACK"], Neither),
    (&[EFFECT, "ROLLBACK", "BEGIN"], Neither),
    (&[EFFECT, "ROLLBACK", "BEGIN", "SAVEPOINT idempotent_effects"], Neither),
    (&[EFFECT, "ROLLBACK AND CHAIN"], Neither),
    (&[EFFECT, "ROLLBACK; BEGIN; SAVEPOINT idempotent_effects"], Neither),
    (&[EFFECT, "ROLLBACK", "DISCARD ALL"], Neither),
    (&[EFFECT, "ROLLBACK", "DISCARD ALL", "BEGIN"], Neither),
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
    (&[EFFECT, "COMMIT"], NotStored),
    (&[EFFECT, "COMMIT", "BEGIN"], NotStored),
    (&[EFFECT, "COMMIT AND CHAIN"], NotStored),
    (&["COMMIT", EFFECT], NotStored),
    (&["ROLLBACK", EFFECT], NotStored),
    (&["ROLLBACK", EFFECT, "BEGIN", "SAVEPOINT idempotent_effects"], NotStored),
    // Another session may commit the prepared transaction later.
    (&[EFFECT, "PREPARE TRANSACTION ':name'"], NotStored),
];

const SCHEMA: &str = "CREATE TABLE effects (id bytea PRIMARY KEY);
    CREATE TABLE later (number int UNIQUE DEFERRABLE INITIALLY DEFERRED);";

struct Stage {
    runtime: Runtime,
    store: PostgresStore,
    /// Connects to the server without a pooler.
    pool: PgPool,
    form: Form,
    /// Whether the application or the pooler resets a session that a handler changed.
    changed_sessions: bool,
}

impl Stage {
    /// On the store's own connections.
    async fn new(server: &Postgres, form: Form) -> Self {
        let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
        let pool = PgPool::connect(&server.url("postgres")).await.unwrap();
        Self { runtime: runtime(store.clone()), store, pool, form, changed_sessions: true }
    }

    async fn play(&self, script: &[&str], expected: Expected) {
        let (id, started) = (id(), Instant::now());
        let Admission::Proceed(attempt) = self.begin(id).await else {
            panic!("{script:?}: a new key does not run")
        };
        let attempt = self.work(attempt, script).await;
        let ending = timeout(Duration::from_secs(30), attempt.complete(&recording()))
            .await
            .expect("it hangs");
        let (effects, state) = self.found(&id).await;
        let context =
            format!("{:?}, {script:?}: {ending:?}, {effects} effects, {state:?}", self.form);
        let completed = matches!(state, Some(RecordState::Completed(_)));
        let expected = if expected == Together && completed { Stored } else { expected };
        match expected {
            Stored => {
                assert!(ending == AttemptOutcome::Stored && completed && effects == 1, "{context}")
            }
            Neither | Together => {
                assert!(ending != AttemptOutcome::Stored && !completed && effects == 0, "{context}")
            }
            NotStored => assert!(ending != AttemptOutcome::Stored && !completed, "{context}"),
        }
        self.retry(id, &context, expected).await;
        if self.changed_sessions {
            self.assert_unharmed(&context).await;
        }
        println!("{:?} {context}", started.elapsed());
    }

    async fn begin(&self, id: RecordId) -> Admission {
        let begun = match self.form {
            Form::Leased => self.runtime.begin(id, digest(), &Policy::DEFAULT).await,
            Form::Within => self.runtime.begin_in_transaction(id, digest(), &Policy::DEFAULT).await,
        };
        begun.unwrap()
    }

    async fn work(&self, mut attempt: Attempt, script: &[&str]) -> Attempt {
        if self.form == Form::Leased {
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

    async fn found(&self, id: &RecordId) -> (i64, Option<RecordState>) {
        let effects =
            sqlx::query("SELECT count(*) FROM effects WHERE id = $1").bind(&id.as_bytes()[..]);
        let effects = effects.fetch_one(&self.pool).await.unwrap().get(0);
        (effects, self.store.look_up(id).await.unwrap().map(|found| found.record.state))
    }

    async fn is_lapsed(&self, id: &RecordId) -> bool {
        self.store
            .look_up(id)
            .await
            .unwrap()
            .is_some_and(|found| found.record.lease_expired(found.at))
    }

    /// The retry replays the stored response, or runs.
    async fn retry(&self, id: RecordId, context: &str, expected: Expected) {
        match (self.begin(id).await, expected) {
            (Admission::Rejected(Verdict::Completed(kept)), Stored) => {
                assert_eq!(kept, recording(), "{context}")
            }
            (Admission::Proceed(attempt), Neither | Together) => {
                let attempt = self.work(attempt, &[EFFECT]).await;
                assert_eq!(
                    attempt.complete(&recording()).await,
                    AttemptOutcome::Stored,
                    "{context}"
                );
                let (effects, state) = self.found(&id).await;
                assert!(
                    effects == 1 && matches!(state, Some(RecordState::Completed(_))),
                    "{context}"
                );
            }
            // What the handler committed or prepared may contain the claim.
            (Admission::Proceed(attempt), NotStored) => {
                assert!(
                    self.form == Form::Leased || !context.contains("COMMIT"),
                    "{context}: it runs again"
                );
                drop(attempt);
            }
            // The handler has committed the claim together with its effects.
            (Admission::Rejected(Verdict::Held { .. }), NotStored) => {
                assert_eq!(self.form, Form::Within, "{context}")
            }
            (Admission::Rejected(Verdict::InFlight { .. }), NotStored) => {}
            (verdict, _) => panic!("{context}: the retry is {verdict:?}"),
        }
    }

    /// Later handlers, on any connection, find a clean session.
    async fn assert_unharmed(&self, context: &str) {
        self.assert_unharmed_but_for("*", context).await;
        // `LISTEN` takes effect when its transaction ends.
        self.assert_unharmed_but_for("", context).await;
    }

    async fn assert_unharmed_but_for(&self, channels: &str, context: &str) {
        let mut attempts = Vec::new();
        for _ in 0..3 {
            let Admission::Proceed(mut attempt) = self.begin(id()).await else {
                panic!("{context}: the next does not run")
            };
            if self.form == Form::Leased {
                attempt.begin_transaction().await.unwrap();
            }
            let mut transaction = attempt.take_transaction().unwrap();
            let connection = transaction.connection_mut().downcast_mut::<PgConnection>().unwrap();
            let settings = "SELECT concat_ws(' ', current_setting('search_path'), \
                current_setting('lock_timeout'), \
                            current_setting('statement_timeout'), \
                            current_setting('default_transaction_read_only'), \
                            current_setting('transaction_isolation'), current_user, \
                            (SELECT string_agg(name, ',') FROM pg_listening_channels() AS name \
                            WHERE $1 = ''),
                            to_regclass('pg_temp.idempotency_records'))";
            let found: String =
                sqlx::query_scalar(settings).bind(channels).fetch_one(connection).await.unwrap();
            assert_eq!(found, "\"$user\", public 0 0 off read committed postgres", "{context}");
            attempt.return_transaction(transaction);
            attempts.push(attempt);
        }
        for attempt in attempts {
            assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{context}");
        }
    }
}

async fn play_all(server: &Postgres, store: PostgresStore, changed_sessions: bool) {
    let url = server.url("postgres");
    let pool = PgPool::connect(&url).await.unwrap();
    for form in [Form::Leased, Form::Within] {
        for (script, expected) in SCRIPTS {
            let (runtime, store, pool) = (runtime(store.clone()), store.clone(), pool.clone());
            Stage { runtime, store, pool, form, changed_sessions }.play(script, *expected).await;
        }
        let prepared = "SELECT coalesce(string_agg(format('ROLLBACK PREPARED %L', gid), ';'), '') \
            FROM pg_prepared_xacts";
        let rows: String = sqlx::query_scalar(prepared).fetch_one(&pool).await.unwrap();
        assert!(!rows.is_empty(), "nothing was prepared");
        for statement in rows.split(';') {
            sql(&url, statement).await;
        }
    }
}

async fn server() -> Postgres {
    let server = Postgres::start();
    sql(&server.url("postgres"), SCHEMA).await;
    let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    server
}

/// Fails if a record is completed without the effects of its handler or the effects are committed
/// without it, or if a handler's changes to its session reach the next handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_of_a_handler_separates_the_record_from_the_effects() {
    let server = server().await;
    let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
    play_all(&server, store, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_separates_them_on_connections_of_the_application() {
    let server = server().await;
    // The application owns the sessions; here it gives each of them to only one handler.
    let pool = PgPoolOptions::new().after_release(|_, _| Box::pin(async { Ok(false) }));
    let store = PostgresStore::from_pool(pool.connect(&server.url("postgres")).await.unwrap())
        .await
        .unwrap();
    play_all(&server, store, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_separates_them_behind_a_pooler() {
    let server = server().await;
    let pooler = PgBouncer::fresh_sessions(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    assert!(format!("{store:?}").contains("Plain"), "{store:?}");
    play_all(&server, store, false).await;
}

/// A handler that has written and committed its effect, together with its claim where the claim is
/// part of the transaction.
async fn committed_by_its_handler(stage: &Stage, policy: &Policy) -> Attempt {
    let begun = match stage.form {
        Form::Leased => stage.runtime.begin(id(), digest(), policy).await,
        Form::Within => stage.runtime.begin_in_transaction(id(), digest(), policy).await,
    };
    let Admission::Proceed(attempt) = begun.unwrap() else { panic!("a new key does not run") };
    stage.work(attempt, &[EFFECT, "COMMIT"]).await
}

async fn end(mut attempt: Attempt, way: &str) -> AttemptOutcome {
    match way {
        "complete" => attempt.complete(&recording()).await,
        "complete undone" => attempt.complete_rolled_back(&recording()).await,
        "release" => attempt.release().await,
        "abandon" => attempt.abandon(Abandoned::Retry).await,
        "keep" => {
            let _kept = attempt.take_transaction();
            attempt.complete(&recording()).await
        }
        _ => panic!("{way} is no way to end"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_its_handler_has_committed_is_held_however_the_attempt_ends() {
    let server = server().await;
    let stage = Stage::new(&server, Form::Within).await;
    for lease_expires in [false, true] {
        let lease = if lease_expires { Duration::from_millis(50) } else { Policy::DEFAULT.lease };
        let policy = Policy::DEFAULT.with_lease(lease);
        for way in ["complete", "complete undone", "release", "abandon", "keep"] {
            let attempt = committed_by_its_handler(&stage, &policy).await;
            let id = *attempt.id();
            assert_eq!(
                stage.found(&id).await,
                (1, Some(RecordState::InFlight)),
                "nothing is committed"
            );
            while lease_expires && !stage.is_lapsed(&id).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let ending = end(attempt, way).await;
            let context = format!("{way}, lease expires: {lease_expires}, {ending:?}");
            assert!(matches!(ending, AttemptOutcome::NotCommitted { .. }), "{context}");
            assert_eq!(stage.found(&id).await, (1, Some(RecordState::Held)), "{context}");
            let retry = stage.begin(id).await;
            assert!(
                matches!(retry, Admission::Rejected(Verdict::Held { .. })),
                "{context}: the retry is {retry:?}"
            );
        }
    }
}

/// The documented limit of `claim = "lease"`: the record does not contain what the handler has
/// committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_lease_a_handler_that_commits_and_fails_has_effects_and_a_response() {
    let server = server().await;
    let stage = Stage::new(&server, Form::Leased).await;
    for (way, completed) in [("complete undone", true), ("release", false)] {
        let attempt = committed_by_its_handler(&stage, &Policy::DEFAULT).await;
        let id = *attempt.id();
        assert_eq!(end(attempt, way).await, AttemptOutcome::Stored, "{way}");
        let (effects, state) = stage.found(&id).await;
        assert_eq!((effects, state.is_some()), (1, completed), "{way}: {state:?}");
    }
}
