//! Batches that are late, because of one row or one connection, and what they cost others.

use std::{
    num::NonZeroUsize,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Lease, RecordId, ShortText, Store, StoreError,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
};
use idempotent_postgres::{
    PostgresStore,
    internals::{batched_postgres, postgres_batches},
};
use idempotent_sql::group_commit::BatchCounts;
use sqlx::{
    Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::helpers::{id, number, request, sql, store, store_with};
use test_support::{
    WAIT_LIMIT,
    proxy::Proxy,
    servers::{pgbouncer::PgBouncer, postgres::Postgres},
};

mod driver;

const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };
const NEIGHBORS: usize = 40;
/// A row of the operation `slow` takes longer than any limit of the store, if `CONDITION` holds.
const SLOW: &str = "CREATE SEQUENCE begun;
    CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.operation = 'slow' AND nextval('begun') CONDITION THEN PERFORM pg_sleep(60); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER be_slow BEFORE INSERT OR UPDATE OF recording ON idempotency_records
    FOR EACH ROW EXECUTE FUNCTION be_slow();";

fn slow() -> Claim {
    request().with_operation(ShortText::new("slow").unwrap())
}

/// Makes the rows of the operation `slow` slow: those whose number has this property.
async fn make_slow(url: &str, condition: &str) {
    sql(url, SLOW.replace("CONDITION", condition)).await;
}

/// Waits until a slow row is being written.
async fn slow_row_begun(url: &str) {
    let sleeping = "SELECT count(*) FROM pg_stat_activity \
        WHERE wait_event = 'PgSleep' AND datname = current_database()";
    let begun = async {
        while number(url, sleeping).await == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WAIT_LIMIT, begun).await.expect("the slow row is written");
}

fn spawn<F>(store: &PostgresStore, call: impl FnOnce(PostgresStore) -> F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(call(store.clone()))
}

/// Claims many new keys concurrently, and returns their leases.
async fn claim_neighbors(store: &PostgresStore) -> Vec<Lease> {
    let claims = (0..NEIGHBORS).map(|_| async move {
        let (id, claim) = (id(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        Lease { id, owner: claim.owner }
    });
    join_all(claims).await
}

async fn complete_all(store: &PostgresStore, leases: &[Lease]) {
    let recording = Bytes::from_static(b"done");
    let completions = leases.iter().map(|lease| store.complete(lease, &recording));
    for fence in join_all(completions).await {
        assert_eq!(fence.unwrap(), Fence::Passed);
    }
    let replays =
        leases.iter().map(|lease| async move { store.claim(&lease.id, &request()).await });
    for replay in join_all(replays).await {
        assert_eq!(
            replay.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(recording.clone()))
        );
    }
}

/// The row is too slow. A statement that the server cancels in a trigger counts as one that has
/// waited for the record.
fn assert_not_granted(outcome: Result<ClaimOutcome, StoreError>) {
    match outcome {
        Ok(outcome) => assert!(
            matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{outcome:?}"
        ),
        Err(error) => assert!(error.is_transient(), "{error:?}"),
    }
}

/// Fails if claims, completions or replays of other keys fail, or wait for the slow row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_row_in_a_batch_fails_alone_and_delays_no_other_key() {
    let (store, url) = store().await;
    let store = batched_postgres(store);
    make_slow(&url, "> 0").await;
    let stuck = spawn(&store, |store| async move { store.claim(&id(), &slow()).await });
    slow_row_begun(&url).await;
    // Twice: in batches that pass the first one, and beside the step that is then executed alone.
    for _ in 0..2 {
        let leases = claim_neighbors(&store).await;
        complete_all(&store, &leases).await;
    }
    assert!(!stuck.is_finished(), "the neighbors have waited for the slow row");
    assert_not_granted(stuck.await.unwrap());
}

/// The same for steps that are in the batch of the slow row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_in_the_batch_of_a_slow_row_end_before_it() {
    let (store, url) = store().await;
    let store = batched_postgres(store);
    make_slow(&url, "> 0").await;
    let (slow_id, slow) = (id(), slow());
    let leases = claim_neighbors(&store).await;
    // The first one occupies the queue, so that the others are in one batch.
    let first = spawn(&store, |store| async move { claim_neighbors(&store).await });
    let stuck = spawn(&store, move |store| async move { store.claim(&slow_id, &slow).await });
    let claims: Vec<_> = (0..4)
        .map(|_| spawn(&store, |store| async move { claim_neighbors(&store).await }))
        .collect();
    first.await.unwrap();
    for claim in claims {
        complete_all(&store, &claim.await.unwrap()).await;
    }
    complete_all(&store, &leases).await;
    assert!(!stuck.is_finished(), "the neighbors have waited for the slow row");
    assert_not_granted(stuck.await.unwrap());
}

/// Fails if a slow completion delays other completions, or claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_completion_in_a_batch_fails_alone_and_delays_no_other_key() {
    let (store, url) = store().await;
    let store = batched_postgres(store);
    let (id, slow) = (id(), slow());
    assert_eq!(store.claim(&id, &slow).await.unwrap(), GRANTED);
    make_slow(&url, "> 0").await;
    let lease = Lease { id, owner: slow.owner };
    let stuck =
        spawn(&store, move |store| async move { store.complete(&lease, &Bytes::new()).await });
    slow_row_begun(&url).await;
    for _ in 0..2 {
        let leases = claim_neighbors(&store).await;
        complete_all(&store, &leases).await;
    }
    assert!(!stuck.is_finished(), "the neighbors have waited for the slow row");
    assert!(stuck.await.unwrap().expect_err("the row is too slow").is_transient());
}

/// Fails if a batch that the server cancels fails as a whole: its time limit is much shorter than
/// that of a step alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_canceled_is_taken_apart() {
    let (store, url) = store().await;
    let store = batched_postgres(store);
    make_slow(&url, "= 1").await;
    assert_eq!(store.claim(&id(), &slow()).await.unwrap(), GRANTED);
    assert_eq!(postgres_batches(&store)[0].alone, 1);
    assert_eq!(number(&url, "SELECT last_value FROM begun").await, 2);
}

/// A store all of whose connections go through a proxy, and one of which has executed a batch.
async fn behind_proxy(url: &str) -> (PostgresStore, Proxy) {
    let (url, proxy) = proxied(url).await;
    (batched_postgres(PostgresStore::connect(&url).await.unwrap()), proxy)
}

/// The URL of the database through a proxy.
async fn proxied(url: &str) -> (String, Proxy) {
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let address = format!("{}:{}", options.get_host(), options.get_port());
    (url.replace(&address, &format!("127.0.0.1:{}", proxy.port)), proxy)
}

/// Fails if claims or completions fail, or wait, because the connection of a batch is dead. A
/// router has forgotten it: nothing arrives, and there is no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_of_a_batch_costs_no_step() {
    // On a busy machine the connection that replaces the dead one can be late too, so that the
    // server counts as down.
    let mut late = Vec::new();
    while let Err(error) = replace_a_dead_connection_of_a_batch().await {
        assert!(error.is_transient() && late.len() < 4, "{error:?} after {late:?}");
        late.push(error);
    }
}

async fn replace_a_dead_connection_of_a_batch() -> Result<(), StoreError> {
    let (direct, url) = store().await;
    let (store, proxy) = behind_proxy(&url).await;
    assert_eq!(store.claim(&id(), &request()).await?, GRANTED);
    proxy.silence();
    let began = Instant::now();
    let stuck = spawn(&store, |store| async move { store.claim(&id(), &request()).await });
    let batches = || postgres_batches(&store)[0].batches;
    while batches() < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    let leases = claim_neighbors(&store).await;
    // It is executed on another connection, after three seconds: its caller has ten.
    assert_eq!(stuck.await.unwrap()?, GRANTED);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");

    let lease = claim_neighbors(&direct).await.remove(0);
    proxy.silence();
    let stuck =
        spawn(&store, move |store| async move { store.complete(&lease, &Bytes::new()).await });
    while postgres_batches(&store)[1].batches < 1 {
        sleep(Duration::from_millis(1)).await;
    }
    complete_all(&store, &leases).await;
    assert_eq!(stuck.await.unwrap()?, Fence::Passed);
    Ok(())
}

/// Fails if other leases are not renewed because the connection of a renewal is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_of_a_renewal_costs_no_other_lease() {
    let (direct, url) = store().await;
    let (store, proxy) = behind_proxy(&url).await;
    let leases = claim_neighbors(&direct).await;
    let extend = Duration::from_secs(30);
    let first = [Renewal::new(leases[0], extend)];
    assert_eq!(store.renew(&first).await.unwrap(), [RenewOutcome::Renewed]);
    proxy.silence();
    let stuck = spawn(&store, move |store| async move { store.renew(&first).await });
    // Until the renewal has the connection.
    sleep(Duration::from_millis(20)).await;
    for lease in &leases[1..] {
        let renewed = store.renew(&[Renewal::new(*lease, extend)]).await;
        assert_eq!(renewed.unwrap(), [RenewOutcome::Renewed]);
    }
    stuck.abort();
}

/// Fails if a batch waits for a locked record until the limit of its statement, so that its other
/// steps are delayed fifty times longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_a_locked_record_until_its_lock_timeout() {
    let server = Postgres::without_fsync();
    let url = server.url("postgres");
    let store = batched_postgres(PostgresStore::connect(&url).await.unwrap());
    store.migrate().await.unwrap();
    let lease = claim_neighbors(&store).await.remove(0);
    let mut session = PgConnection::connect(&url).await.unwrap();
    let lock = "BEGIN; SELECT FROM idempotency_records FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut session).await.unwrap();
    let completion =
        spawn(&store, move |store| async move { store.complete(&lease, &Bytes::new()).await });
    let taken_apart = async {
        while postgres_batches(&store)[1].alone == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WAIT_LIMIT, taken_apart).await.expect("the batch does not wait for ever");
    sqlx::raw_sql("ROLLBACK").execute(&mut session).await.unwrap();
    assert_eq!(completion.await.unwrap().unwrap(), Fence::Passed);
    let log = server.log();
    assert!(log.contains("due to lock timeout") && !log.contains("due to statement timeout"));
}

/// Fails if the statements of batches have other limits on some connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_have_their_limits_on_every_kind_of_connection() {
    const OBSERVE: &str = "CREATE TABLE observed (write text, lock text, statement text);
        CREATE FUNCTION observe() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO observed VALUES
                (TG_OP, current_setting('lock_timeout'), current_setting('statement_timeout'));
            RETURN NEW;
        END $$;
        CREATE TRIGGER observe BEFORE INSERT OR UPDATE OF recording ON idempotency_records
        FOR EACH ROW EXECUTE FUNCTION observe();";
    let server = Postgres::without_fsync();
    let pooler = PgBouncer::in_front_of(server.port);
    let url = server.url("postgres");
    let pool = PgPoolOptions::new().connect(&url).await.unwrap();
    let stores = [
        PostgresStore::connect(&url).await.unwrap(),
        PostgresStore::from_pool(pool).await.unwrap(),
        PostgresStore::connect(&pooler.url("postgres")).await.unwrap(),
    ];
    stores[0].migrate().await.unwrap();
    sql(&url, OBSERVE).await;
    for store in stores.map(batched_postgres) {
        let leases = claim_neighbors(&store).await;
        complete_all(&store, &leases).await;
        // A batch that was late on a busy machine may have been taken apart.
        let of_batches = "SELECT count(DISTINCT write) FROM observed
            WHERE (lock, statement) = ('20ms', '1s')";
        assert_eq!(number(&url, of_batches).await, 2, "{store:?}");
        sql(&url, "TRUNCATE observed").await;
    }
}

async fn completed(store: &PostgresStore, recordings: &[Bytes]) -> Vec<RecordId> {
    let keys = recordings.iter().map(|recording| async move {
        let (id, claim) = (id(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        let lease = Lease { id, owner: claim.owner };
        assert_eq!(store.complete(&lease, recording).await.unwrap(), Fence::Passed);
        id
    });
    join_all(keys).await
}

/// Replays these keys concurrently; returns what the batches of claims have done meanwhile.
async fn replay(store: &PostgresStore, keys: &[RecordId], recordings: &[Bytes]) -> BatchCounts {
    let before = postgres_batches(store)[0];
    let replays = keys.iter().map(|id| async move { store.claim(id, &request()).await.unwrap() });
    for (outcome, recording) in join_all(replays).await.into_iter().zip(recordings) {
        assert_eq!(outcome, ClaimOutcome::Rejected(Rejection::Completed(recording.clone())));
    }
    let after = postgres_batches(store)[0];
    BatchCounts {
        batches: after.batches - before.batches,
        steps: after.steps - before.steps,
        alone: after.alone - before.alone,
    }
}

/// Fails if a batch of replays returns more bytes than a batch may send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_returns_no_more_bytes_than_it_may_send() {
    let bytes = NonZeroUsize::new(4096).unwrap();
    let (store, _) = store_with(PostgresStore::options().max_batch_bytes(bytes)).await;
    let store = batched_postgres(store);
    let recordings: Vec<_> = (0..64).map(|number| Bytes::from(vec![number; 1500])).collect();
    let keys = completed(&store, &recordings).await;
    let counts = replay(&store, &keys, &recordings).await;
    let returned = counts.steps - counts.alone;
    assert!(returned <= 2 * counts.batches && counts.alone > 0, "{counts:?}");
}

/// Fails if a batch returns a large recording, for which its other steps would wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_recording_is_replayed_alone() {
    let (store, _) = store().await;
    let store = batched_postgres(store);
    let large = |number: u8| if number.is_multiple_of(8) { 1 << 20 } else { 1000 };
    let recordings: Vec<_> =
        (0..64).map(|number| Bytes::from(vec![number; large(number)])).collect();
    let keys = completed(&store, &recordings).await;
    let counts = replay(&store, &keys, &recordings).await;
    assert!(counts.alone >= 8, "{counts:?}");
    assert!(counts.steps > counts.alone, "small ones are replayed in batches: {counts:?}");
}
