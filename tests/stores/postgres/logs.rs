//! No log, including the server's, contains a byte of a stored response or of the digest of a
//! request, and no statement fails on purpose.

use std::{error::Error as _, future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use idempotent_core::{
    Fingerprint, Lease, RecordedBody, Recording, Store, StoreError,
    protocol::{Claim, ClaimOutcome, Fence},
    store::{Transaction, TransactionClaim, postgres::PostgresStore},
};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::sleep;

use self::events::Events;
use super::{id, number, request, sql, store};
use test_support::servers::{pgbouncer::PgBouncer, postgres::Postgres};

mod events;

const RESPONSE: &str = "a-response-that-is-in-no-log";
/// The input of the request's digest.
const DIGEST: &[u8; 4] = b"\xfe\xed\xfa\xce";
/// Errors that occur only because the test provokes them.
const DELIBERATE: [&str; 3] = ["division by zero", "duplicate key", "square root"];

/// Each completion waits for the first lock while it runs, and for the second one while it commits.
const WAITS: &str = "
    CREATE FUNCTION wait_for() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE UPDATE ON idempotency_records
    FOR EACH ROW WHEN (NEW.state = 2) EXECUTE FUNCTION wait_for('1');
    CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON idempotency_records DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state = 2) EXECUTE FUNCTION wait_for('2')";
const WAITING: &str =
    "SELECT coalesce(min(pid), 0)::bigint FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The transaction contains no statement of the handler.
    Alone,
    /// The claim is committed before the transaction.
    Leased,
    /// The claim is part of the transaction.
    Within,
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

const FORMS: [Form; 3] = [Form::Alone, Form::Leased, Form::Within];
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
    Recording::new(201, headers, RecordedBody::Whole(response)).encode()
}

fn confidential() -> Claim {
    let digest: Vec<u8> = DIGEST.iter().copied().cycle().take(Fingerprint::BYTES).collect();
    request().with_fingerprint(Fingerprint::from_bytes(digest.try_into().unwrap()))
}

/// The response as plain text and in the formats of `bytea` (escape format equals plain text), and
/// a digest as it is displayed.
fn assert_without_response(text: &str, context: &str) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for form in [RESPONSE, &hex(RESPONSE.as_bytes()), &hex(DIGEST)] {
        let line = text.lines().find(|line| line.to_lowercase().contains(form));
        assert_eq!(line, None, "{context}");
    }
}

struct LoggedServer {
    store: PostgresStore,
    /// Connects to the server without a pooler.
    url: String,
    name: &'static str,
}

type Admission = (Lease, Option<Box<dyn Transaction>>);

impl LoggedServer {
    async fn begun(&self, form: Form) -> Admission {
        let (id, claim) = (id(), confidential());
        let lease = Lease { id, owner: claim.owner };
        let transactions = self.store.transactions().unwrap();
        if form == Form::Within {
            return (lease, Some(granted(&self.store, &lease, &claim).await.expect("a new key")));
        }
        self.store.claim(&id, &claim).await.unwrap();
        (lease, if form == Form::Leased { Some(transactions.begin().await.unwrap()) } else { None })
    }

    /// The outcome of a completion; `None` where it ended before the fault could happen, or was
    /// dropped.
    async fn completed(&self, form: Form, fault: Fault) -> Option<Result<Fence, StoreError>> {
        let (lease, mut transaction) = self.begun(form).await;
        if fault == Fault::Fenced {
            self.fence(&lease, transaction.as_mut()).await;
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
                let _locked = self.locked(1).await;
                Some(call.await)
            }
            Fault::Cancelled => self.struck(call, 1, "pg_cancel_backend").await,
            Fault::Disconnected => self.struck(call, 1, "pg_terminate_backend").await,
            Fault::DisconnectedInCommit => self.struck(call, 2, "pg_terminate_backend").await,
            Fault::Dropped => {
                let _locked = self.locked(1).await;
                tokio::select! {
                    _ = call => panic!("{form:?}: it waits for nothing"),
                    _ = self.waiting() => None,
                }
            }
        }
    }

    async fn struck(
        &self,
        mut call: BoxFuture<'_, Result<Fence, StoreError>>,
        lock: i64,
        strike: &str,
    ) -> Option<Result<Fence, StoreError>> {
        let _locked = self.locked(lock).await;
        let struck = async {
            let waiting = self.waiting().await;
            assert_eq!(
                number(&self.url, format!("SELECT {strike}({waiting})::int::bigint")).await,
                1
            );
            pending::<()>().await
        };
        tokio::select! {
            outcome = &mut call => Some(outcome),
            () = struck => None,
        }
    }

    async fn locked(&self, lock: i64) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        sqlx::query("SELECT pg_advisory_lock($1)")
            .bind(lock)
            .execute(&mut connection)
            .await
            .unwrap();
        connection
    }

    /// The process id of a session that waits for a lock.
    async fn waiting(&self) -> i64 {
        loop {
            match number(&self.url, WAITING).await {
                0 => sleep(Duration::from_millis(2)).await,
                waiting => return waiting,
            }
        }
    }

    /// Gives the record to another owner, within the transaction that has locked it.
    async fn fence(&self, lease: &Lease, transaction: Option<&mut Box<dyn Transaction>>) {
        let text =
            "UPDATE idempotency_records SET owner = decode(repeat('07', 16), 'hex') WHERE id = $1";
        let query = sqlx::query(text).bind(lease.id.as_bytes().as_slice());
        let fenced = match transaction {
            Some(transaction) => {
                query
                    .execute(transaction.connection_mut().downcast_mut::<PgConnection>().unwrap())
                    .await
            }
            None => {
                let mut connection = self.locked(3).await;
                query.execute(&mut connection).await
            }
        };
        assert_eq!(fenced.unwrap().rows_affected(), 1);
    }

    async fn assert_quiet(&self, form: Form, fault: Fault) {
        let context = format!("{}, {form:?}, {fault:?}", self.name);
        let outcome = self.completed(form, fault).await;
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

    /// Many concurrent claims of one key, of which the first one is completed. `lease` is the lease
    /// of an existing record.
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

/// Two claims, of each kind, that time out waiting for a transaction with the record: of a new key,
/// and of one whose lease has expired.
async fn assert_waits_in_vain(target: &LoggedServer) {
    let transactions = target.store.transactions().unwrap();
    for abandoned in [false, true] {
        let (id, claim) = (id(), confidential());
        if abandoned {
            target.store.claim(&id, &confidential().with_lease(Duration::ZERO)).await.unwrap();
        }
        let first = transactions.claim(&id, &claim, Duration::ZERO).await.unwrap();
        assert!(matches!(first, TransactionClaim::Granted { .. }), "{}", target.name);
        let second = transactions.claim(&id, &confidential(), Duration::ZERO).await.unwrap();
        assert!(
            matches!(second, TransactionClaim::Rejected(ClaimOutcome::InFlight { .. })),
            "{}",
            target.name
        );
        let third = target.store.claim(&id, &confidential()).await.unwrap();
        assert!(matches!(third, ClaimOutcome::InFlight { .. }), "{}: {third:?}", target.name);
    }
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

/// Every kind of connection to a server.
async fn logged_servers(server: &Postgres, pooler: &PgBouncer) -> Vec<LoggedServer> {
    let (url, pooled) = (server.url("postgres"), pooler.url("postgres"));
    let whole = |url: &str| format!("{url}?statement-cache-capacity=0");
    let connect = async |url: &str| PostgresStore::connect(url).await.unwrap();
    let share = async |url: &str| {
        let options: PgConnectOptions = url.parse().unwrap();
        let pool = PgPool::connect_with(options.extra_float_digits(None)).await.unwrap();
        PostgresStore::from_pool(pool).await.unwrap()
    };
    let stores = [
        ("own", connect(&url).await),
        ("own, whole", connect(&whole(&url)).await),
        ("own, pooler", connect(&pooled).await),
        ("shared", share(&url).await),
        ("shared, whole", share(&whole(&url)).await),
        ("shared, pooler", share(&whole(&pooled)).await),
    ];
    stores.into_iter().map(|(name, store)| LoggedServer { store, url: url.clone(), name }).collect()
}

/// On one thread, whose events are captured.
#[tokio::test]
async fn no_byte_of_a_response_or_of_a_digest_is_in_any_log() {
    let server = Postgres::start();
    let pooler = PgBouncer::before(server.port);
    let events = Arc::new(Events::default());
    // While there is only one dispatcher, an event that another thread reaches first is disabled
    // permanently.
    let _second = tracing::Dispatch::new(Events::default());
    let seen = tracing::subscriber::set_default(events.clone());
    let logged_servers = logged_servers(&server, &pooler).await;
    logged_servers[0].store.migrate().await.unwrap();
    sql(&server.url("postgres"), WAITS).await;
    for target in &logged_servers {
        for (form, fault) in FORMS.iter().flat_map(|form| FAULTS.map(|fault| (*form, fault))) {
            target.assert_quiet(form, fault).await;
        }
        for lease in [None, Some(Duration::ZERO)] {
            for _ in 0..5 {
                target.assert_race_fails_no_statement(lease).await;
            }
        }
        assert_waits_in_vain(target).await;
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
        assert!(log.contains(reason), "nothing failed by {reason}");
    }
    assert!(events.contains("sqlx::query"), "nothing was seen of sqlx's events");
}

/// A check constraint that an operator has added shows the row in the server's error.
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
