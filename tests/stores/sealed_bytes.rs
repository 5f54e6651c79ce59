//! The bytes that a thief of a database gets: the file of SQLite with its WAL, the rows and all
//! files of Postgres with its WAL, those of MariaDB with its logs, the snapshot of Redis, and the
//! items of DynamoDB.
//!
//! Each test first finds the secrets of a runtime without a keyring, so that a search that misses
//! them would be noticed.

use std::{fs, sync::Arc};

#[cfg(feature = "mysql")]
use super::mysql_files;
use idempotent_core::{
    Digester, EncodedRecording, Key, Keyring, Policy, RecordId, RequestDigest, Runtime, ScopeId,
    Store,
    job::{ClaimMode, Failure, Job},
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, NoteError, RuntimeOptions, Verdict},
};
use idempotent_http::recording::{RecordedBody, encode};
use sqlx::{Connection, PgConnection};
use test_support::{
    servers::redis::{IN_MEMORY, Server},
    subjects::{postgres, sqlite::File},
};

/// A runtime and what it has written.
struct Story {
    runtime: Runtime,
    /// Of a response, a step, an input, and the result of a job.
    secrets: [String; 4],
}

fn keyring() -> Keyring {
    Keyring::none().with(1, &[1; 32]).unwrap()
}

fn runtime(store: &Arc<dyn Store>, keyring: Keyring) -> Runtime {
    let mut options = RuntimeOptions::default();
    (options.purge_every, options.keyring) = (None, keyring);
    Runtime::shared(store.clone(), options)
}

fn id(key: &str) -> RecordId {
    RecordId::new("tests", &ScopeId::new("alice"), "pay", &Key::from_text(key).unwrap())
}

fn request() -> RequestDigest {
    Digester::new(["POST", "/payments"]).finish()
}

async fn begin(runtime: &Runtime, key: &str) -> Admission {
    runtime.begin(id(key), request(), &Policy::DEFAULT).await.unwrap()
}

async fn proceed(runtime: &Runtime, key: &str) -> Attempt {
    match begin(runtime, key).await {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("{verdict:?}"),
    }
}

/// A response with this secret, so long that Postgres keeps it beside the table, and of bytes that
/// cannot be compressed.
fn long(secret: &str) -> EncodedRecording {
    let mut random = fastrand::Rng::with_seed(7);
    let mut body = secret.as_bytes().to_vec();
    body.extend((0..8_000).map(|_| random.u8(..)));
    encode(201, &[(b"x-secret", secret.as_bytes())], &RecordedBody::Whole(body.into()))
}

impl Story {
    /// Completes an operation and a job, and leaves an operation in flight with a step and an
    /// input.
    async fn new(store: &Arc<dyn Store>, keyring: Keyring) -> Self {
        let secrets = std::array::from_fn(|_| format!("secret{:016x}", fastrand::u64(..)));
        let story = Self { runtime: runtime(store, keyring), secrets };
        let [response, step, input, result] = &story.secrets;
        let attempt = proceed(&story.runtime, response).await;
        let ended = attempt.complete(long(response)).await;
        assert_eq!(ended, AttemptOutcome::Stored);
        assert_eq!(story.job().await, (result.clone(), false));
        let attempt = proceed(&story.runtime, step).await;
        attempt.operation().set_input(input).unwrap();
        let ran = attempt.operation().step("charge");
        ran.run(async |_| Ok::<_, NoteError>(step.clone())).await.unwrap();
        attempt.release().await;
        story
    }

    /// Runs a job, in a transaction if the store has some. Returns its result, and whether it is a
    /// replay.
    async fn job(&self) -> (String, bool) {
        let [key, .., result] = &self.secrets;
        let (scope, key) = (ScopeId::new("alice"), Key::from_text(key).unwrap());
        let done = if self.runtime.transactions().is_some() {
            let job = Job::new("job").with_claim(ClaimMode::Transaction);
            let work = async |_, _: idempotent_core::job::JobTransaction<PgConnection>| {
                Ok::<_, Failure>(result.clone())
            };
            self.runtime.run_in_transaction(&job, &scope, &key, &7, work).await
        } else {
            let work = async |_| Ok::<_, Failure>(result.clone());
            self.runtime.run(&Job::new("job"), &scope, &key, &7, work).await
        };
        let done = done.unwrap();
        (done.value, done.replayed)
    }

    fn assert_found(&self, bytes: &[u8], found: bool) {
        for secret in &self.secrets {
            let is_here = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert_eq!(is_here, found, "{secret}");
        }
    }

    /// Asserts that this keyring reads everything that was written.
    async fn assert_read(&self, store: &Arc<dyn Store>, keyring: Keyring) {
        let reader = Self { runtime: runtime(store, keyring), secrets: self.secrets.clone() };
        let [response, step, input, result] = &self.secrets;
        let Admission::Rejected(verdict) = begin(&reader.runtime, response).await else {
            panic!("it ran again")
        };
        assert_eq!(verdict, Verdict::Rejected(Rejection::Completed(long(response))));
        assert_eq!(reader.job().await, (result.clone(), true));
        let found = reader.runtime.look_up(&id(step)).await.unwrap().unwrap().record.notes;
        assert_eq!(&idempotent_core::runtime::decode_input::<String>(&found.input).unwrap(), input);
        let attempt = proceed(&reader.runtime, step).await;
        let again = attempt.operation().step("charge");
        let again = again.run(async |_| Err::<String, _>(NoteError::Ended)).await;
        assert_eq!(&again.unwrap(), step);
        attempt.release().await;
    }
}

/// Asserts what a search through all bytes of the store finds, before and after the first keyring.
async fn check(store: Arc<dyn Store>, bytes: impl AsyncFn() -> Vec<u8>) {
    let before = Story::new(&store, Keyring::none()).await;
    before.assert_found(&bytes().await, true);
    let after = Story::new(&store, keyring()).await;
    after.assert_found(&bytes().await, false);
    after.assert_read(&store, keyring()).await;
    before.assert_read(&store, keyring()).await;
    let (administrator, mut next, mut resealed) = (after.runtime.administrator(), None, 0);
    loop {
        let page = administrator.reseal(next.as_ref()).await.unwrap();
        assert_eq!((page.changed, page.unreadable), (0, vec![]));
        (next, resealed) = (page.next, resealed + page.resealed);
        if next.is_none() {
            break;
        }
    }
    assert_eq!(resealed, 3, "the records from before");
    before.assert_read(&store, keyring().refusing_unsealed()).await;
    let record = store.look_up(&id(&before.secrets[0])).await.unwrap().unwrap().record;
    assert_eq!(record.status, Some(201), "operators do not see the status");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_file_of_sqlite() {
    let file = File::new();
    let store = file.open().await;
    store.migrate().await.unwrap();
    check(Arc::new(store), async || sqlite_files(&file)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_files_of_postgres() {
    let (store, url) = postgres::store().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let since = wal_position(&mut connection).await;
    let connection = tokio::sync::Mutex::new(connection);
    check(Arc::new(store), async || {
        let mut connection = connection.lock().await;
        let analyze = "ANALYZE idempotency_records";
        sqlx::raw_sql(analyze).execute(&mut *connection).await.unwrap();
        let files = postgres_files(&mut connection).await;
        let wal = postgres_wal(&mut connection, &since).await;
        [files, wal, postgres_rows(&mut connection).await].concat()
    })
    .await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_files_of_mysql() {
    let (server, store, url) = mysql_files::store().await;
    check(Arc::new(store), async || {
        let rows = mysql_files::rows(&url).await;
        [mysql_files::tables(&url).await, mysql_files::logs(&server).await, rows].concat()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_snapshot_of_redis() {
    let server = Server::start(IN_MEMORY);
    let store = idempotent_redis::RedisStore::connect(&server.url()).await.unwrap();
    check(Arc::new(store), async || redis_bytes(&server)).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_items_of_dynamodb() {
    let store = test_support::servers::dynamodb::Emulator::shared().store().await;
    let read = store.clone();
    check(Arc::new(store), async || idempotent_dynamodb::internals::contents(&read).await.unwrap())
        .await;
}

/// The file of SQLite, and its WAL.
pub(super) fn sqlite_files(file: &File) -> Vec<u8> {
    let name = |suffix: &str| format!("{}{suffix}", file.path().display());
    [fs::read(name("")).unwrap(), fs::read(name("-wal")).unwrap_or_default()].concat()
}

/// All files of a database: tables, values that are kept beside them, indexes and statistics.
pub(super) async fn postgres_files(connection: &mut PgConnection) -> Vec<u8> {
    sqlx::raw_sql("CHECKPOINT").execute(&mut *connection).await.unwrap();
    let files = "SELECT string_agg(pg_read_binary_file(folder || '/' || file), ''::bytea)
        FROM (SELECT 'base/' || oid FROM pg_database WHERE datname = current_database()) f (folder),
            pg_ls_dir(folder) AS file
        WHERE file ~ '^[0-9]+(_|$)'";
    sqlx::query_scalar(files).fetch_one(connection).await.unwrap()
}

/// The name of the present file of the WAL.
pub(super) async fn wal_position(connection: &mut PgConnection) -> String {
    // Other tests write too, and a checkpoint recycles what no slot needs. A temporary slot ends
    // with the connection.
    let slot = format!("test_{:x}", fastrand::u64(..));
    let keep = "SELECT pg_create_physical_replication_slot($1, true, true)::text";
    sqlx::query(keep).bind(slot).execute(&mut *connection).await.unwrap();
    let name = "SELECT pg_walfile_name(pg_current_wal_lsn())";
    sqlx::query_scalar(name).fetch_one(connection).await.unwrap()
}

/// The WAL since one of its files.
pub(super) async fn postgres_wal(connection: &mut PgConnection, since: &str) -> Vec<u8> {
    let files = "SELECT string_agg(pg_read_binary_file('pg_wal/' || name), ''::bytea)
        FROM pg_ls_waldir()
        WHERE name BETWEEN $1 AND pg_walfile_name(pg_current_wal_lsn())";
    sqlx::query_scalar(files).bind(since).fetch_one(connection).await.unwrap()
}

/// The columns of all rows of records and of the log, as text, with bytes also as bytes.
pub(super) async fn postgres_rows(connection: &mut PgConnection) -> Vec<u8> {
    let rows = "SELECT concat(
        (SELECT string_agg(r::text, '') FROM idempotency_records r),
        (SELECT string_agg(l::text, '') FROM idempotency_records_audit l))";
    let rows: String = sqlx::query_scalar(rows).fetch_one(connection).await.unwrap();
    decoded(&rows)
}

/// A text whose pairs of hexadecimal digits are also decoded.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for part in text.split("\\\\x").skip(1) {
        let digits: Vec<u8> = part.bytes().take_while(u8::is_ascii_hexdigit).collect();
        let pairs = digits
            .chunks_exact(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        bytes.extend(pairs);
    }
    bytes
}

/// The snapshot of a server, and all keys with their values.
pub(super) fn redis_bytes(server: &Server) -> Vec<u8> {
    let _: String = server.command("CONFIG SET rdbcompression no");
    let _: String = server.command("SAVE");
    let directory: Vec<String> = server.command("CONFIG GET dir");
    let mut bytes = fs::read(format!("{}/dump.rdb", directory[1])).unwrap();
    let keys: Vec<Vec<u8>> = server.command("KEYS *");
    let mut connection = server.client().get_connection().unwrap();
    for key in keys {
        bytes.extend(&key);
        let dumped: Vec<u8> = redis::cmd("DUMP").arg(key).query(&mut connection).unwrap();
        bytes.extend(dumped);
    }
    bytes
}
