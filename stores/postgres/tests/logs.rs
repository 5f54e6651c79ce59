//! No log, including the server's, contains a stored response or the digest of a request, and no
//! statement fails on purpose.

use std::{error::Error as _, future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use idempotent_core::{
    Fingerprint, Lease, Store, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    store::{Transaction, TransactionClaim},
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_postgres::PostgresStore;
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::sleep;

use self::events::Events;
use crate::{
    helpers::{id, number, request, sql, store},
    transaction_claims::claim_as_before,
};
use test_support::servers::{pgbouncer::PgBouncer, postgres::Postgres};

mod events;

const RESPONSE: &str = "a-response-that-is-in-no-log";
/// The input of the request's digest.
const DIGEST: &[u8; 4] = b"\xfe\xed\xfa\xce";
/// Errors that a statement could raise on purpose, to end its transaction. None may be in the log.
const DELIBERATE: [&str; 3] = ["division by zero", "duplicate key", "square root"];

/// Each completion waits for the first lock while it runs, and for the second one while it commits.
const WAITS: &str = "
    CREATE FUNCTION wait_for() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON idempotency_records
    FOR EACH ROW WHEN (NEW.state = 2) EXECUTE FUNCTION wait_for('1');
    CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON idempotency_records
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 2) EXECUTE FUNCTION wait_for('2')";
const WAITING: &str =
    "SELECT coalesce(min(pid), 0)::bigint FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimMode {
    /// The completion is a single statement, without a transaction of a handler.
    NoTransaction,
    /// The claim is committed before the transaction.
    Lease,
    /// The claim is part of the transaction.
    Transaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Fenced,
    LockTimeout,
    Cancelled,
    Disconnected,
    DisconnectedInCommit,
    Dropped,
}

const MODES: [ClaimMode; 3] = [ClaimMode::NoTransaction, ClaimMode::Lease, ClaimMode::Transaction];
const FAULTS: [Fault; 7] = [
    Fault::None,
    Fault::Fenced,
    Fault::LockTimeout,
    Fault::Cancelled,
    Fault::Disconnected,
    Fault::DisconnectedInCommit,
    Fault::Dropped,
];

fn recording() -> Bytes {
    let response = Bytes::from_static(RESPONSE.as_bytes());
    let headers = vec![(Bytes::from_static(b"x-token"), response.clone())];
    Recording::new(201, headers, RecordedBody::Whole(response)).encode().into()
}

fn confidential() -> Claim {
    let digest: Vec<u8> = DIGEST.iter().copied().cycle().take(Fingerprint::BYTES).collect();
    request().with_fingerprint(Fingerprint::from_bytes(digest.try_into().unwrap()))
}

/// Asserts that a text contains neither the response, as plain text or in a format of `bytea` (the
/// escape format equals plain text), nor the digest.
fn assert_without_response(text: &str, context: &str) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for secret in [RESPONSE, &hex(RESPONSE.as_bytes()), &hex(DIGEST)] {
        let line = text.lines().find(|line| line.to_lowercase().contains(secret));
        assert_eq!(line, None, "{context}");
    }
}

struct LoggedServer {
    store: PostgresStore,
    /// Connects to the server without a pooler.
    url: String,
    name: &'static str,
}

type Begun = (Lease, Option<Box<dyn Transaction>>);

impl LoggedServer {
    async fn begin(&self, mode: ClaimMode) -> Begun {
        let (id, claim) = (id(), confidential());
        let lease = Lease { id, owner: claim.owner };
        let transactions = self.store.transactions().unwrap();
        if mode == ClaimMode::Transaction {
            return (lease, Some(granted(&self.store, &lease, &claim).await.expect("a new key")));
        }
        self.store.claim(&id, &claim).await.unwrap();
        (
            lease,
            if mode == ClaimMode::Lease { Some(transactions.begin().await.unwrap()) } else { None },
        )
    }

    /// The outcome of a completion during which a fault happens; `None` if the completion was
    /// dropped.
    async fn complete(&self, mode: ClaimMode, fault: Fault) -> Option<Result<Fence, StoreError>> {
        let (lease, transaction) = self.begin(mode).await;
        if fault == Fault::Fenced {
            self.fence(&lease, mode).await;
        }
        let recording = recording();
        let call: BoxFuture<'_, _> = match transaction {
            Some(transaction) => {
                Box::pin(async { transaction.complete_and_commit(&lease, &recording).await })
            }
            None => self.store.complete(&lease, &recording),
        };
        match fault {
            Fault::None | Fault::Fenced => Some(call.await),
            Fault::LockTimeout => {
                let _locked = self.hold_lock(1).await;
                Some(call.await)
            }
            Fault::Cancelled => self.interrupt(call, 1, "pg_cancel_backend").await,
            Fault::Disconnected => self.interrupt(call, 1, "pg_terminate_backend").await,
            Fault::DisconnectedInCommit => self.interrupt(call, 2, "pg_terminate_backend").await,
            Fault::Dropped => {
                let _locked = self.hold_lock(1).await;
                tokio::select! {
                    _ = call => panic!("{mode:?}: the completion did not wait for the lock"),
                    _ = self.await_waiting_session() => None,
                }
            }
        }
    }

    async fn interrupt(
        &self,
        mut call: BoxFuture<'_, Result<Fence, StoreError>>,
        lock: i64,
        function: &str,
    ) -> Option<Result<Fence, StoreError>> {
        let _locked = self.hold_lock(lock).await;
        let interrupted = async {
            let waiting = self.await_waiting_session().await;
            assert_eq!(
                number(&self.url, format!("SELECT {function}({waiting})::int::bigint")).await,
                1
            );
            pending::<()>().await
        };
        tokio::select! {
            outcome = &mut call => Some(outcome),
            () = interrupted => None,
        }
    }

    async fn hold_lock(&self, lock: i64) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        sqlx::query("SELECT pg_advisory_lock($1)")
            .bind(lock)
            .execute(&mut connection)
            .await
            .unwrap();
        connection
    }

    /// Waits until a session waits for a lock, and returns its process id.
    async fn await_waiting_session(&self) -> i64 {
        loop {
            match number(&self.url, WAITING).await {
                0 => sleep(Duration::from_millis(2)).await,
                waiting => return waiting,
            }
        }
    }

    /// Gives the key to another owner.
    async fn fence(&self, lease: &Lease, mode: ClaimMode) {
        if mode == ClaimMode::Transaction {
            // The transaction has not inserted a record yet: a process that does not know its lock
            // inserts one.
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let inserted = claim_as_before(&mut connection, &lease.id, &confidential()).await;
            assert_eq!(inserted, 1);
            return;
        }
        let text =
            "UPDATE idempotency_records SET owner = decode(repeat('07', 16), 'hex') WHERE id = $1";
        let mut connection = self.hold_lock(3).await;
        let fenced =
            sqlx::query(text).bind(lease.id.as_bytes().as_slice()).execute(&mut connection);
        assert_eq!(fenced.await.unwrap().rows_affected(), 1);
    }

    async fn assert_discloses_nothing(&self, mode: ClaimMode, fault: Fault) {
        let context = format!("{}, {mode:?}, {fault:?}", self.name);
        let outcome = self.complete(mode, fault).await;
        match (fault, &outcome) {
            (Fault::None, Some(Ok(Fence::Passed))) | (Fault::Fenced, Some(Ok(Fence::Fenced))) => {}
            (Fault::Dropped, None) => {}
            (Fault::None | Fault::Fenced | Fault::Dropped, _) | (_, Some(Ok(_)) | None) => {
                panic!("{context}: {outcome:?}")
            }
            (_, Some(Err(error))) => {
                let causes = std::iter::successors(error.source(), |cause| (*cause).source());
                let shown: String = causes.map(|cause| format!("\n{cause} {cause:?}")).collect();
                assert_without_response(&format!("{error} {error:?} {shown}"), &context);
            }
        }
    }

    /// Claims one key many times concurrently; one claim must be granted, and is completed. If
    /// `lease` is set, the key has a record with this lease.
    async fn assert_race_fails_no_statement(&self, lease: Option<Duration>) {
        let (id, claim) = (id(), confidential());
        if let Some(lease) = lease {
            self.store.claim(&id, &claim.with_lease(lease)).await.unwrap();
        }
        let claims = (0..8).map(|_| async {
            let claim = confidential();
            let lease = Lease { id, owner: claim.owner };
            let transaction = granted(&self.store, &lease, &claim).await?;
            Some(transaction.complete_and_commit(&lease, &recording()).await.unwrap())
        });
        let granted: Vec<_> = join_all(claims).await.into_iter().flatten().collect();
        assert_eq!(granted, [Fence::Passed], "{}", self.name);
    }
}

/// Asserts that claims time out while a transaction has the record: claims of each kind, of a new
/// key and of one whose lease has expired.
async fn assert_claims_time_out(target: &LoggedServer) {
    let transactions = target.store.transactions().unwrap();
    for abandoned in [false, true] {
        let (id, claim) = (id(), confidential());
        if abandoned {
            target.store.claim(&id, &confidential().with_lease(Duration::ZERO)).await.unwrap();
        }
        let lease = Lease { id, owner: claim.owner };
        let mut first = granted(&target.store, &lease, &claim).await.expect("a free key");
        let second = transactions.claim(&id, &confidential(), Duration::ZERO).await.unwrap();
        assert!(
            matches!(second, TransactionClaim::Rejected(Rejection::InFlight { .. })),
            "{}",
            target.name
        );
        assert_eq!(first.complete(&lease, &recording()).await.unwrap(), Fence::Passed);
        let third = target.store.claim(&id, &confidential()).await.unwrap();
        assert!(
            matches!(third, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{}: {third:?}",
            target.name
        );
    }
    // This one waits for an uncommitted record.
    let (id, claim) = (id(), confidential());
    let mut inserting = PgConnection::connect(&target.url).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut inserting).await.unwrap();
    assert_eq!(claim_as_before(&mut inserting, &id, &claim).await, 1);
    let claimed = target.store.claim(&id, &confidential()).await.unwrap();
    assert!(
        matches!(claimed, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
        "{}: {claimed:?}",
        target.name
    );
}

async fn granted(
    store: &PostgresStore,
    lease: &Lease,
    claim: &Claim,
) -> Option<Box<dyn Transaction>> {
    let claimed =
        store.transactions().unwrap().claim(&lease.id, claim, Duration::from_secs(5)).await;
    match claimed.unwrap() {
        TransactionClaim::Granted { transaction, .. } => Some(transaction),
        TransactionClaim::Rejected(_) => None,
    }
}

/// A store on every kind of connection to the server.
async fn logged_servers(server: &Postgres, pooler: &PgBouncer) -> Vec<LoggedServer> {
    let (url, pooled) = (server.url("postgres"), pooler.url("postgres"));
    let without_cache = |url: &str| format!("{url}?statement-cache-capacity=0");
    let connect = async |url: &str| PostgresStore::connect(url).await.unwrap();
    let share = async |url: &str| {
        let options: PgConnectOptions = url.parse().unwrap();
        let pool = PgPool::connect_with(options.extra_float_digits(None)).await.unwrap();
        PostgresStore::from_pool(pool).await.unwrap()
    };
    let stores = [
        ("own", connect(&url).await),
        ("own, no statement cache", connect(&without_cache(&url)).await),
        ("own, pooler", connect(&pooled).await),
        ("shared", share(&url).await),
        ("shared, no statement cache", share(&without_cache(&url)).await),
        ("shared, pooler", share(&without_cache(&pooled)).await),
    ];
    stores.into_iter().map(|(name, store)| LoggedServer { store, url: url.clone(), name }).collect()
}

/// Runs on one thread, whose events are captured.
#[tokio::test]
async fn no_log_contains_a_response_or_a_digest() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_front_of(server.port);
    let events = Arc::new(Events::default());
    // While only one dispatcher exists, `tracing` disables an event permanently if another thread
    // reaches it first.
    let _second = tracing::Dispatch::new(Events::default());
    let seen = tracing::subscriber::set_default(events.clone());
    let logged_servers = logged_servers(&server, &pooler).await;
    logged_servers[0].store.migrate().await.unwrap();
    sql(&server.url("postgres"), WAITS).await;
    for target in &logged_servers {
        for (mode, fault) in MODES.iter().flat_map(|mode| FAULTS.map(|fault| (*mode, fault))) {
            target.assert_discloses_nothing(mode, fault).await;
        }
        for lease in [None, Some(Duration::ZERO)] {
            for _ in 0..5 {
                target.assert_race_fails_no_statement(lease).await;
            }
        }
        assert_claims_time_out(target).await;
    }
    drop(seen);
    let (log, events) = (server.log(), events.text());
    for (name, text) in
        [("the server's log", &log), ("events", &events), ("the pooler's log", &pooler.log())]
    {
        assert_without_response(text, name);
    }
    for error in DELIBERATE {
        let line = log.lines().find(|line| line.contains(error));
        assert_eq!(line, None);
    }
    // Each of the faults appears in the log.
    for reason in ["lock timeout", "user request", "administrator command"] {
        assert!(log.contains(reason), "no statement failed with {reason:?}");
    }
    assert!(events.contains("sqlx::query"), "the events of sqlx were not captured");
}

/// The server's error about a check constraint that an operator has added contains the row.
#[tokio::test]
async fn no_error_of_the_store_shows_a_row() {
    let (store, url) = store().await;
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    sql(&url, "ALTER TABLE idempotency_records ADD CONSTRAINT none_is_done CHECK (state <> 2)")
        .await;
    let error = store.complete(&Lease { id, owner: claim.owner }, &recording()).await.unwrap_err();
    let shown = format!("{error:?} {:?}", error.source());
    assert!(
        shown.contains("none_is_done") && !shown.contains("Failing row") && !shown.contains("\\x"),
        "{shown}"
    );
}
