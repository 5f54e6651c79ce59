//! Handlers that misuse their transaction.

use std::time::{Duration, Instant};

use idempotent_core::{
    Policy, RecordId, RecordState, Runtime, Store,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};
use idempotent_mysql::MySqlStore;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, MySqlPool, Row};
use test_support::{
    cuts::{digest, id, recording, runtime},
    servers::mariadb::sql,
};
use tokio::time::timeout;

use crate::helpers::store;

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
}
use Expected::{Neither, Stored, Together};

/// The statements that a handler sends, whatever the outcome of each.
const SCRIPTS: &[(&[&str], Expected)] = &[
    (&[EFFECT], Stored),
    // The server refuses whatever would end the transaction.
    (&["BEGIN", EFFECT], Stored),
    (&["START TRANSACTION", EFFECT], Stored),
    (&["COMMIT", EFFECT], Stored),
    (&["ROLLBACK", EFFECT], Stored),
    (&[EFFECT, "COMMIT"], Stored),
    (&[EFFECT, "COMMIT AND CHAIN"], Stored),
    (&[EFFECT, "COMMIT RELEASE"], Stored),
    (&[EFFECT, "ROLLBACK"], Stored),
    (&[EFFECT, "ROLLBACK AND CHAIN"], Stored),
    (&[EFFECT, "ROLLBACK", "BEGIN", "COMMIT"], Stored),
    (&[EFFECT, "COMMIT; BEGIN"], Stored),
    (&[EFFECT, "PREPARE s FROM 'COMMIT'", "EXECUTE s"], Stored),
    (&[EFFECT, "CALL commits()"], Stored),
    (&[EFFECT, "BEGIN NOT ATOMIC COMMIT; END"], Stored),
    (&[EFFECT, "SET STATEMENT max_statement_time = 1 FOR COMMIT"], Stored),
    (&[EFFECT, "XA END 'guessed'", "XA COMMIT 'guessed' ONE PHASE", "XA RECOVER"], Stored),
    (&[EFFECT, "XA START 'another'"], Stored),
    (&[EFFECT, "XA PREPARE 'guessed'", "XA ROLLBACK 'guessed'"], Stored),
    // And what would end it implicitly.
    (&[EFFECT, "CREATE TABLE others (id int)"], Stored),
    (&[EFFECT, "DROP TABLE effects"], Stored),
    (&[EFFECT, "ALTER TABLE effects ADD COLUMN n int"], Stored),
    (&[EFFECT, "TRUNCATE effects"], Stored),
    (&[EFFECT, "CREATE INDEX i ON effects (id)"], Stored),
    (&[EFFECT, "LOCK TABLES effects WRITE", "UNLOCK TABLES"], Stored),
    (&[EFFECT, "ANALYZE TABLE effects"], Stored),
    (&[EFFECT, "FLUSH TABLES"], Stored),
    (&[EFFECT, "CREATE USER someone"], Stored),
    (&[EFFECT, "SET autocommit = 0"], Stored),
    (&["SET autocommit = 0", EFFECT, "SET autocommit = 1"], Stored),
    // Savepoints, and statements that fail.
    (&["SAVEPOINT one", EFFECT], Stored),
    (&["SAVEPOINT one", EFFECT, "RELEASE SAVEPOINT one"], Stored),
    (&["SAVEPOINT idempotent_effects", EFFECT], Stored),
    (&[EFFECT, "SAVEPOINT one", "SELECT nonsense", "ROLLBACK TO SAVEPOINT one"], Stored),
    (&[EFFECT, "ROLLBACK TO SAVEPOINT idempotent_effects"], Stored),
    (&[EFFECT, EFFECT], Stored),
    (&[EFFECT, "SELECT nonsense"], Stored),
    // What a handler leaves in its session.
    (&[EFFECT, "SET SESSION sql_mode = ''"], Stored),
    (&[EFFECT, "SET SESSION time_zone = '+13:00'"], Stored),
    (&[EFFECT, "SET timestamp = 1"], Stored),
    (&[EFFECT, "SET SESSION innodb_lock_wait_timeout = 1"], Stored),
    (&[EFFECT, "SET SESSION sql_safe_updates = 1"], Stored),
    (&[EFFECT, "SET SESSION sql_select_limit = 0"], Stored),
    (&[EFFECT, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"], Stored),
    (&[EFFECT, "SET SESSION TRANSACTION READ ONLY"], Stored),
    (&[EFFECT, "SET TRANSACTION READ ONLY"], Stored),
    (&[EFFECT, "SET NAMES latin1"], Stored),
    (&[EFFECT, "SET @mine = 1"], Stored),
    (&[EFFECT, "USE information_schema"], Stored),
    (&[EFFECT, "SELECT GET_LOCK('mine', 0)"], Stored),
    (&[EFFECT, "CREATE TEMPORARY TABLE mine (id int)"], Stored),
    (&[EFFECT, "SET SESSION max_statement_time = 0.001"], Stored),
    (&[EFFECT, "SET SESSION max_statement_time = 0.001", "SELECT SLEEP(1)"], Stored),
    (&[EFFECT, "SET SESSION foreign_key_checks = 0, unique_checks = 0"], Stored),
    (&[EFFECT, "SET SESSION sql_log_bin = 0"], Stored),
    // The statements of the store would meet this table.
    (&[EFFECT, "CREATE TEMPORARY TABLE idempotency_records (id int)"], Neither),
    (
        &[
            EFFECT,
            "CREATE TEMPORARY TABLE mine LIKE idempotency_records",
            "ALTER TABLE mine RENAME TO idempotency_records",
        ],
        Stored,
    ),
    (
        &[
            EFFECT,
            "CREATE TEMPORARY TABLE idempotency_records AS SELECT * FROM idempotency_records",
        ],
        Neither,
    ),
    (&[EFFECT, "KILL QUERY CONNECTION_ID()"], Together),
    (&[EFFECT, "KILL CONNECTION_ID()"], Neither),
];

const SCHEMA: &str = "CREATE TABLE effects (id BINARY(32) PRIMARY KEY) ENGINE = InnoDB;
    CREATE PROCEDURE commits() BEGIN COMMIT; END;";

/// What the next handler could meet of the one before.
const SESSION: &str = "SELECT CONVERT(CONCAT_WS(' ', @@sql_mode, @@time_zone, \
    @@innodb_lock_wait_timeout, \
    @@sql_safe_updates, @@sql_select_limit, @@tx_isolation, @@tx_read_only, @@autocommit, \
    @@character_set_client, @@max_statement_time, @@foreign_key_checks, @@sql_log_bin, \
    COALESCE(@mine, 'none'), DATABASE(), COALESCE(IS_USED_LOCK('mine') = CONNECTION_ID(), 0)) \
    USING utf8mb4)";

struct Fixture {
    runtime: Runtime,
    store: MySqlStore,
    pool: MySqlPool,
    mode: ClaimMode,
    /// What a handler finds in a new session.
    session: String,
}

impl Fixture {
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
        }
        self.retry(id, &context, expected).await;
        self.assert_clean_sessions(&context).await;
        println!("{:?} {context}", started.elapsed());
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
        let connection = transaction.connection_mut().downcast_mut::<MySqlConnection>().unwrap();
        let literal =
            attempt.id().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for statement in script {
            let text = statement.replace(":id", &format!("X'{literal}'"));
            // The handler ignores the error.
            let _ = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection).await;
        }
        attempt.return_transaction(transaction);
        attempt
    }

    async fn effects_and_state(&self, id: &RecordId) -> (i64, Option<RecordState>) {
        let effects =
            sqlx::query("SELECT count(*) FROM effects WHERE id = ?").bind(&id.as_bytes()[..]);
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
                let ended = attempt.complete(&recording()).await;
                assert_eq!(ended, AttemptOutcome::Stored, "{context}");
                let (effects, state) = self.effects_and_state(&id).await;
                assert!(
                    effects == 1 && matches!(state, Some(RecordState::Completed(_))),
                    "{context}"
                );
            }
            (verdict, _) => panic!("{context}: the retry got {verdict:?}"),
        }
    }

    /// Asserts that later handlers find a clean session, on each connection.
    async fn assert_clean_sessions(&self, context: &str) {
        let mut attempts = Vec::new();
        for _ in 0..3 {
            let Admission::Proceed(mut attempt) = self.begin(id()).await else {
                panic!("{context}: the next request does not run")
            };
            if self.mode == ClaimMode::Lease {
                attempt.begin_transaction().await.unwrap();
            }
            let mut transaction = attempt.take_transaction().unwrap();
            let connection =
                transaction.connection_mut().downcast_mut::<MySqlConnection>().unwrap();
            assert_eq!(session(connection).await, self.session, "{context}");
            for table in ["mine", "idempotency_records"] {
                let columns = format!("SELECT owner FROM {table} WHERE 1 = 0");
                let found = sqlx::raw_sql(AssertSqlSafe(columns)).execute(&mut *connection).await;
                assert_eq!(found.is_ok(), table == "idempotency_records", "{context}");
            }
            attempt.return_transaction(transaction);
            attempts.push(attempt);
        }
        for attempt in attempts {
            assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{context}");
        }
    }
}

async fn session(connection: &mut MySqlConnection) -> String {
    sqlx::query_scalar(SESSION).fetch_one(connection).await.unwrap()
}

/// Fails if a record is completed without the effects of its handler, if the effects are committed
/// without the record, or if a handler's changes to its session reach the next handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_of_a_handler_separates_the_record_from_the_effects() {
    let (store, url) = store().await;
    sql(&url, SCHEMA).await;
    let pool = MySqlPool::connect(&url).await.unwrap();
    let mut new = MySqlConnection::connect(&url).await.unwrap();
    let session = session(&mut new).await;
    for mode in [ClaimMode::Lease, ClaimMode::Transaction] {
        let fixture = Fixture {
            runtime: runtime(store.clone()),
            store: store.clone(),
            pool: pool.clone(),
            mode,
            session: session.clone(),
        };
        for (script, expected) in SCRIPTS {
            fixture.run_script(script, *expected).await;
        }
    }
    let prepared = sqlx::raw_sql("XA RECOVER").fetch_all(&pool).await.unwrap();
    assert_eq!(prepared.len(), 0, "a transaction is prepared");
}
