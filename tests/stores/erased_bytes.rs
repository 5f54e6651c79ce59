//! The bytes of a principal that are left after an erasure: in rows and in Redis none, in the files
//! of a database none once the operator has done what the guide [Security] says.
//!
//! Each test first finds everything that it searches for.
//!
//! [Security]: ../../idempotent-actix/src/guide/security.md

use std::sync::Arc;

use idempotent_core::{
    Abandoned, Digester, Key, OnAbandon, Policy, Principal, RecordId, Runtime, ScopeId, Store,
    protocol::{Actor, Resolution},
    runtime::{Admission, Attempt, AttemptOutcome, NoteError, RuntimeOptions, Subject},
};
use idempotent_http::recording::{RecordedBody, encode};
use idempotent_sqlite::SqliteStore;
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, SqliteConnection, SqlitePool,
    sqlite::SqliteJournalMode,
};
#[cfg(feature = "mysql")]
use test_support::servers::mariadb;
use test_support::{
    servers::{
        postgres::sql,
        redis::{IN_MEMORY, Server},
    },
    subjects::{postgres, sqlite::File},
};

#[cfg(feature = "mysql")]
use super::mysql_files;
use super::sealed_bytes::{
    postgres_files, postgres_rows, postgres_wal, redis_bytes, sqlite_files, wal_position,
};

const HOLD: Policy = Policy::DEFAULT.with_abandoned(OnAbandon::Hold);

/// A principal, and what records have of it.
struct Person {
    scope: ScopeId,
    /// Of a response, a header, a reference, progress, a step, and an input.
    secrets: [String; 6],
}

impl Person {
    fn new() -> Self {
        let secrets = std::array::from_fn(|_| format!("personal{:016x}", fastrand::u64(..)));
        let scope = ScopeId::of("user", format!("{:016x}", fastrand::u64(..)));
        Self { scope, secrets }
    }

    fn principal(&self) -> Principal {
        self.scope.principal()
    }

    fn id(&self, key: &str) -> RecordId {
        RecordId::new("tests", &self.scope, "pay", &Key::from_text(key).unwrap())
    }

    async fn attempt(&self, runtime: &Runtime, key: &str) -> Attempt {
        let subject = Subject::new(self.id(key)).with_principal(self.principal());
        let request = Digester::new(["POST", "/payments"]).finish();
        match runtime.begin(subject, request, &HOLD).await.unwrap() {
            Admission::Proceed(attempt) => attempt,
            Admission::Rejected(verdict) => panic!("{verdict:?}"),
        }
    }

    /// Completes an operation, leaves one held, and one in flight with everything that a handler
    /// can note. An operator has completed and then removed another one.
    async fn use_service(&self, runtime: &Runtime) {
        let [response, header, reference, progress, step, input] = &self.secrets;
        let attempt = self.attempt(runtime, "done").await;
        attempt.operation().set_reference(reference).await.unwrap();
        let body = RecordedBody::Whole(response.clone().into());
        let recording = encode(201, &[(b"x-personal", header.as_bytes())], &body);
        assert_eq!(attempt.complete(recording).await, AttemptOutcome::Stored);
        for (key, is_held) in [("held", true), ("in flight", false)] {
            let attempt = self.attempt(runtime, key).await;
            let operation = attempt.operation();
            operation.set_reference(reference).await.unwrap();
            operation.progress(progress).await.unwrap();
            operation.set_input(input).unwrap();
            let ran = operation.step("charge").run(async |_| Ok::<_, NoteError>(step.clone()));
            ran.await.unwrap();
            if is_held {
                attempt.abandon(Abandoned::Hold).await;
            }
        }
        self.be_decided_about(runtime).await;
    }

    /// Has an operation that an operator completes and then removes. The log keeps both decisions.
    async fn be_decided_about(&self, runtime: &Runtime) {
        let attempt = self.attempt(runtime, "resolved").await;
        attempt.operation().set_reference(&self.secrets[2]).await.unwrap();
        attempt.abandon(Abandoned::Hold).await;
        let (administrator, id) = (runtime.administrator(), self.id("resolved"));
        let owner = async || administrator.look_up(&id).await.unwrap().unwrap().record.owner;
        let recording = encode(200, &[], &RecordedBody::None).into();
        let resolution = Resolution::Complete(recording);
        administrator.resolve(&id, &owner().await, &resolution, &actor()).await.unwrap();
        assert!(administrator.forget(&id, &owner().await, &actor()).await.unwrap());
        assert_eq!(administrator.audit_of(&id).await.unwrap().len(), 2);
    }

    /// Erases the principal. Returns how many records were removed.
    async fn be_erased(&self, runtime: &Runtime) -> u64 {
        let administrator = runtime.administrator();
        let principals = administrator.principals(&self.scope);
        let (mut erased, mut after) = (0, None);
        loop {
            let page = administrator.erase(&principals, true, after.as_ref(), &actor()).await;
            let page = page.unwrap();
            assert_eq!(page.left, vec![]);
            (erased, after) = (erased + page.erased, page.next);
            if after.is_none() {
                return erased;
            }
        }
    }

    /// What is searched for, with its forms: texts, and the digest of the principal.
    fn parts(&self) -> Vec<Vec<Vec<u8>>> {
        let texts = self.secrets.iter().map(|secret| vec![secret.clone().into_bytes()]);
        let digest = self.principal();
        let digest = vec![digest.as_bytes().to_vec(), digest.to_string().into_bytes()];
        texts.chain([digest]).collect()
    }

    /// How many of the parts some bytes have.
    fn found_in(&self, bytes: &[u8]) -> usize {
        let has = |form: &Vec<u8>| contains(bytes, form);
        self.parts().iter().filter(|forms| forms.iter().any(has)).count()
    }
}

/// How many parts a person has.
const ALL: usize = 7;

fn contains(mut bytes: &[u8], part: &[u8]) -> bool {
    while let Some(at) = bytes.iter().position(|byte| *byte == part[0]) {
        bytes = &bytes[at..];
        if bytes.starts_with(part) {
            return true;
        }
        bytes = &bytes[1..];
    }
    false
}

fn actor() -> Actor {
    Actor::new("ada", "request 17 for erasure")
}

fn runtime(store: &Arc<dyn Store>) -> Runtime {
    let mut options = RuntimeOptions::default();
    options.purge_every = None;
    Runtime::shared(store.clone(), options)
}

/// Erases one of two principals that have used a service, after everything was found of it.
async fn erased(store: &Arc<dyn Store>, bytes: impl AsyncFn() -> Vec<u8>) -> Person {
    let (runtime, person, other) = (runtime(store), Person::new(), Person::new());
    person.use_service(&runtime).await;
    other.use_service(&runtime).await;
    assert_eq!(person.found_in(&bytes().await), ALL);
    assert_eq!(person.be_erased(&runtime).await, 3);
    assert_eq!(other.found_in(&bytes().await), ALL, "another principal was erased");
    person
}

async fn sqlite_rows(connection: &mut SqliteConnection) -> Vec<u8> {
    let columns = "SELECT format('SELECT CAST(coalesce(\"%w\", '''') AS BLOB) FROM \"%w\"',
            c.name, t.name)
        FROM sqlite_schema t, pragma_table_info(t.name) c
        WHERE t.type = 'table'";
    let columns = sqlx::query_scalar(columns).fetch_all(&mut *connection).await;
    let columns: Vec<String> = columns.unwrap();
    assert!(columns.len() > 25, "{columns:?}");
    let mut bytes = Vec::new();
    for column in columns {
        let values = sqlx::query_scalar(AssertSqlSafe(column)).fetch_all(&mut *connection);
        let values: Vec<Vec<u8>> = values.await.unwrap();
        bytes.extend(values.concat());
    }
    bytes
}

async fn execute(connection: &mut SqliteConnection, statements: &str) {
    let statements = AssertSqlSafe(statements.to_owned());
    sqlx::raw_sql(statements).execute(connection).await.unwrap();
}

const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_has_nothing_of_an_erased_principal_after_a_vacuum() {
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let person = erased(&store, async || sqlite_files(&file)).await;
    let mut connection = SqliteConnection::connect(&file.url()).await.unwrap();
    assert_eq!(person.found_in(&sqlite_rows(&mut connection).await), 0);
    execute(&mut connection, CHECKPOINT).await;
    assert!(person.found_in(&sqlite_files(&file)) > 0, "free pages are empty: correct the guide");
    execute(&mut connection, "VACUUM").await;
    execute(&mut connection, CHECKPOINT).await;
    assert_eq!(person.found_in(&sqlite_files(&file)), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_has_nothing_of_an_erased_principal_if_deletions_are_secure() {
    let file = File::new();
    let options = file.options().journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePool::connect_with(options.pragma("secure_delete", "ON")).await.unwrap();
    let store = SqliteStore::from_pool(pool).await.unwrap();
    store.migrate().await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let person = erased(&store, async || sqlite_files(&file)).await;
    assert!(person.found_in(&sqlite_files(&file)) > 0, "the WAL is empty: correct the guide");
    let mut connection = SqliteConnection::connect(&file.url()).await.unwrap();
    execute(&mut connection, CHECKPOINT).await;
    assert_eq!(person.found_in(&sqlite_files(&file)), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_has_nothing_of_an_erased_principal_after_a_full_vacuum() {
    let (store, url) = postgres::store().await;
    let store: Arc<dyn Store> = Arc::new(store);
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let since = wal_position(&mut connection).await;
    let person = erased(&store, async || {
        // Statistics have values too.
        sql(&url, "ANALYZE idempotency_records").await;
        let mut connection = PgConnection::connect(&url).await.unwrap();
        postgres_files(&mut connection).await
    })
    .await;
    assert_eq!(person.found_in(&postgres_rows(&mut connection).await), 0);
    assert!(person.found_in(&postgres_files(&mut connection).await) > 0, "no row is dead");
    sql(&url, "VACUUM idempotency_records").await;
    let left = person.found_in(&postgres_files(&mut connection).await);
    assert!(left > 0, "a vacuum overwrites what it frees: correct the guide");
    for statement in ["VACUUM (FULL, ANALYZE) idempotency_records", "VACUUM FULL pg_statistic"] {
        sql(&url, statement).await;
    }
    assert_eq!(person.found_in(&postgres_files(&mut connection).await), 0);
    let wal = postgres_wal(&mut connection, &since).await;
    assert!(person.found_in(&wal) > 0, "the WAL forgets: correct the guide");
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_has_nothing_of_an_erased_principal_in_a_table_that_was_copied() {
    let (server, store, url) = mysql_files::store().await;
    let store: Arc<dyn Store> = Arc::new(store);
    // A removed row stays in its page while a transaction can read it, and some of its bytes may
    // stay longer.
    let mut reader = sqlx::MySqlConnection::connect(&url).await.unwrap();
    let snapshot = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
    sqlx::raw_sql(snapshot).execute(&mut reader).await.unwrap();
    let person = erased(&store, async || mysql_files::tables(&url).await).await;
    assert_eq!(person.found_in(&mysql_files::rows(&url).await), 0);
    let left = person.found_in(&mysql_files::tables(&url).await);
    assert!(left > 0, "no removed row is left: correct the guide");
    reader.close().await.unwrap();
    mariadb::sql(&url, "OPTIMIZE TABLE idempotency_records").await;
    assert_eq!(person.found_in(&mysql_files::tables(&url).await), 0);
    let logs = person.found_in(&mysql_files::logs(&server).await);
    assert!(logs > 0, "the logs forget: correct the guide");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_has_nothing_of_an_erased_principal() {
    let server = Server::start(IN_MEMORY);
    let store = idempotent_redis::RedisStore::connect(&server.url()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let person = erased(&store, async || redis_bytes(&server)).await;
    assert_eq!(person.found_in(&redis_bytes(&server)), 0);
}
