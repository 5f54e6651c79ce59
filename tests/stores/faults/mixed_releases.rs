//! Two processes with different settings on one store, as during a deployment.

use std::time::Duration;

use idempotent_core::{
    FingerprintKeys, OnAbandon, Policy, RecordId, RecordingError, Runtime,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, RuntimeOptions, Verdict},
    store::Store,
};
use idempotent_http::recording::Recording;
use idempotent_postgres::PostgresStore;
use idempotent_sqlite::SqliteStore;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, SqliteConnection, SqlitePool};
use test_support::{
    WAIT_LIMIT,
    cuts::{digest, id, recording},
    subjects::{postgres, sqlite::File},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{proceed, rejected};

/// Long enough to be renewed in time on a busy machine.
const SHORT: Duration = Duration::from_secs(2);
const OLD: Policy = Policy::DEFAULT.with_lease(SHORT).with_ttl(Duration::from_secs(3_600));
const NEW: Policy = Policy::DEFAULT;
const KEYS: i64 = 60;

enum Rows {
    Sqlite(SqlitePool, #[expect(dead_code, reason = "removes the file")] File),
    Postgres(PgPool),
}

/// A process of the old release, and one of the new release, which signs fingerprints with another
/// secret.
struct Fixture {
    rows: Rows,
    old: Runtime,
    new: Runtime,
}

fn runtime(store: impl Store, secrets: &[u32]) -> Runtime {
    let with = |keys: FingerprintKeys, id: &u32| {
        keys.with(*id, &[u8::try_from(*id).unwrap(); 32]).unwrap()
    };
    let mut options = RuntimeOptions::default();
    options.fingerprint_keys = secrets.iter().fold(FingerprintKeys::none(), with);
    options.purge_every = None;
    Runtime::new(store, options)
}

impl Fixture {
    async fn sqlite() -> Self {
        let file = File::new();
        let open = async || SqliteStore::connect(&file.url()).await.unwrap();
        let (old, new) = (open().await, open().await);
        old.migrate().await.unwrap();
        // Waits for handlers that have the only write transaction, however busy the machine is.
        let options = file.options().busy_timeout(WAIT_LIMIT);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        Self::with(Rows::Sqlite(pool, file), old, new).await
    }

    async fn postgres() -> Self {
        let (old, url) = postgres::store().await;
        let new = PostgresStore::connect(&url).await.unwrap();
        Self::with(Rows::Postgres(PgPool::connect(&url).await.unwrap()), old, new).await
    }

    async fn with(rows: Rows, old: impl Store, new: impl Store) -> Self {
        let fixture = Self { rows, old: runtime(old, &[1, 2]), new: runtime(new, &[2, 1]) };
        fixture.execute("CREATE TABLE effects (note text)").await;
        fixture
    }

    async fn execute(&self, text: &str) {
        let text = AssertSqlSafe(text.to_owned());
        match &self.rows {
            Rows::Sqlite(pool, _) => sqlx::raw_sql(text).execute(pool).await.map(drop).unwrap(),
            Rows::Postgres(pool) => sqlx::raw_sql(text).execute(pool).await.map(drop).unwrap(),
        }
    }

    async fn numbers(&self, query: &str) -> Vec<i64> {
        let query = AssertSqlSafe(query.to_owned());
        match &self.rows {
            Rows::Sqlite(pool, _) => sqlx::query_scalar(query).fetch_all(pool).await.unwrap(),
            Rows::Postgres(pool) => sqlx::query_scalar(query).fetch_all(pool).await.unwrap(),
        }
    }

    /// Lets all leases expire, as if their processes had died.
    async fn expire_leases(&self) {
        self.execute("UPDATE idempotency_records SET lease_until = 0 WHERE state = 1").await;
    }
}

/// Runs a handler that writes one effect and does not look at errors.
async fn write_effect(attempt: &mut Attempt, id: &RecordId) {
    let note: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let insert = AssertSqlSafe(format!("INSERT INTO effects VALUES ('{note}')"));
    let mut transaction = attempt.take_transaction().unwrap();
    let connection = transaction.connection_mut();
    if let Some(connection) = connection.downcast_mut::<SqliteConnection>() {
        let _ = sqlx::raw_sql(insert).execute(connection).await;
    } else {
        let connection = connection.downcast_mut::<PgConnection>().unwrap();
        let _ = sqlx::raw_sql(insert).execute(connection).await;
    }
    attempt.return_transaction(transaction);
}

/// One request, which is sent until it is completed. The old release claims by lease, the new one
/// in the transaction. Some attempts of either die, and leases expire while their owners are alive.
/// Returns how many were granted.
async fn send_until_completed(runtime: Runtime, in_transaction: bool, id: RecordId) -> i64 {
    let policy = OLD.with_lease(Duration::from_millis(300));
    let (mut granted, until) = (0, Instant::now() + WAIT_LIMIT);
    loop {
        assert!(Instant::now() < until, "the key is not completed");
        let begun = if in_transaction {
            runtime.begin_in_transaction(id, digest(), &NEW).await
        } else {
            runtime.begin(id, digest(), &policy).await
        };
        match begun {
            Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(response)))) => {
                assert_eq!(response, recording());
                return granted;
            }
            Ok(Admission::Rejected(verdict)) => {
                assert!(
                    matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })),
                    "{verdict:?}"
                );
            }
            Ok(Admission::Proceed(mut attempt)) => {
                granted += 1;
                // Another attempt may take over before the transaction, or in it.
                let pause = || sleep(Duration::from_millis(fastrand::u64(..30)));
                if !in_transaction {
                    pause().await;
                }
                let begun = in_transaction || attempt.begin_transaction().await.is_ok();
                if begun {
                    write_effect(&mut attempt, &id).await;
                }
                pause().await;
                if begun && fastrand::u8(..10) < 6 {
                    attempt.complete(&recording()).await;
                }
            }
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        sleep(Duration::from_millis(fastrand::u64(..20))).await;
    }
}

async fn check_claims_of_both_kinds(fixture: Fixture) {
    let mut requests = JoinSet::new();
    for _ in 0..KEYS {
        let id = id();
        for in_transaction in [false, true, false, true] {
            let runtime = if in_transaction { &fixture.new } else { &fixture.old };
            requests.spawn(send_until_completed(runtime.clone(), in_transaction, id));
        }
    }
    let expire = async {
        loop {
            fixture.expire_leases().await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    let granted: i64 = tokio::select! {
        granted = requests.join_all() => granted.iter().sum(),
        () = expire => unreachable!("it never ends"),
    };
    assert!(granted > KEYS, "no attempt died");
    assert_eq!(fixture.numbers("SELECT count(*) FROM effects").await, [KEYS]);
    assert_eq!(fixture.numbers("SELECT count(DISTINCT note) FROM effects").await, [KEYS]);
    let completed = "SELECT count(*) FROM idempotency_records WHERE state = 2";
    assert_eq!(fixture.numbers(completed).await, [KEYS]);
}

async fn check_settings(fixture: Fixture) {
    let Fixture { old, new, .. } = &fixture;
    // A lease of the other length, and a fingerprint with the other secret.
    for (first, second, policy, other) in [(old, new, OLD, NEW), (new, old, NEW, OLD)] {
        let id = id();
        let attempt = proceed(first, id, &policy).await;
        let until = Instant::now() + SHORT * 2;
        while Instant::now() < until {
            let verdict = rejected(second, id, &other).await;
            assert!(
                matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })),
                "{verdict:?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
        assert_eq!(
            rejected(second, id, &other).await,
            Verdict::Rejected(Rejection::Completed(recording()))
        );
    }
    // The ttl is that of the first claim, also after a takeover by the other release.
    let taken_over = id();
    drop(proceed(old, taken_over, &OLD).await);
    fixture.expire_leases().await;
    let attempt = proceed(new, taken_over, &NEW).await;
    assert_eq!(attempt.number(), 2);
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    let ttls = "SELECT expires_at - first_seen FROM idempotency_records WHERE attempt = 2";
    assert_eq!(fixture.numbers(ttls).await, [3_600_000]);
    // One release holds abandoned keys. Whichever it is, the operation does not run again.
    let hold = |policy: Policy| policy.with_abandoned(OnAbandon::Hold);
    for (first, second) in [(hold(OLD), NEW), (OLD, hold(NEW))] {
        let id = id();
        drop(proceed(old, id, &first).await);
        fixture.expire_leases().await;
        for policy in [second, first, second] {
            let verdict = rejected(new, id, &policy).await;
            assert!(matches!(verdict, Verdict::Rejected(Rejection::Held { .. })), "{verdict:?}");
        }
    }
}

/// Fails if a response of a later release, in a format that this one does not know, is replayed or
/// replaced.
async fn check_later_format(fixture: Fixture) {
    let id = id();
    let attempt = proceed(&fixture.old, id, &NEW).await;
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    let encoded = bytes::Bytes::from(recording());
    let (content, checksum) = encoded.split_last_chunk::<4>().unwrap();
    assert_eq!(crc32(content), u32::from_be_bytes(*checksum));
    let mut later = content.to_vec();
    later[0] += 1;
    later.extend(crc32(&later).to_be_bytes());
    let hex: String = later.iter().map(|byte| format!("{byte:02x}")).collect();
    let literal = match fixture.rows {
        Rows::Sqlite(..) => format!("x'{hex}'"),
        Rows::Postgres(_) => format!("'\\x{hex}'"),
    };
    fixture.execute(&format!("UPDATE idempotency_records SET recording = {literal}")).await;
    for runtime in [&fixture.old, &fixture.new] {
        assert_later(rejected(runtime, id, &NEW).await);
        match runtime.begin_in_transaction(id, digest(), &NEW).await.unwrap() {
            Admission::Rejected(verdict) => assert_later(verdict),
            begun => panic!("the operation would run again: {begun:?}"),
        }
    }
    assert_eq!(fixture.numbers("SELECT count(*) FROM idempotency_records").await, [1]);
}

/// The format concerns those that decode recordings, not the protocol.
fn assert_later(verdict: Verdict) {
    let Verdict::Rejected(Rejection::Completed(recording)) = verdict else {
        panic!("a recording in a later format: {verdict:?}");
    };
    let error = Recording::decode(&recording).unwrap_err();
    assert!(matches!(error, RecordingError::UnknownVersion { .. }), "{error}");
}

/// The checksum at the end of a recording.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0xEDB8_8320))
    })
}

macro_rules! on_each_database {
    ($($name:ident $check:ident;)*) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { $check(Fixture::sqlite().await).await; })*
        }
        mod postgres_database {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { $check(Fixture::postgres().await).await; })*
        }
    };
}

on_each_database! {
    claims_by_lease_and_in_transactions_make_each_effect_once check_claims_of_both_kinds;
    releases_with_other_settings_neither_run_an_operation_twice_nor_lose_it check_settings;
    a_response_in_a_later_format_is_neither_replayed_nor_replaced check_later_format;
}
