//! The sizes of batches, as an observer of the runtime gets them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use idempotent_core::{
    Digester, Key, Policy, RecordId, Runtime, ScopeId, Store,
    runtime::{Admission, AttemptOutcome, Observer, RuntimeOptions},
    store::memory::MemoryStore,
};
use idempotent_http::recording::{RecordedBody, encode};
use idempotent_postgres::internals::{batched_postgres, postgres_batches};
use idempotent_sqlite::internals::{batched_sqlite, sqlite_batches};
use test_support::{WAIT_LIMIT, subjects};
use tokio::task::JoinSet;

const KEYS: usize = 100;

/// The number of batches of each size.
#[derive(Default)]
struct Sizes(Mutex<BTreeMap<usize, u64>>);

impl Observer for Sizes {
    fn batched(&self, steps: usize, batches: u64) {
        *self.0.lock().unwrap().entry(steps).or_default() += batches;
    }
}

impl Sizes {
    /// All batches, and the steps in them.
    fn totals(&self) -> (usize, usize) {
        let sizes = self.0.lock().unwrap();
        let sizes =
            sizes.iter().map(|(steps, batches)| (*steps, usize::try_from(*batches).unwrap()));
        sizes.fold((0, 0), |(all, sum), (steps, batches)| (all + batches, sum + steps * batches))
    }
}

fn runtime(store: Arc<dyn Store>, count_every: Option<Duration>) -> (Runtime, Arc<Sizes>) {
    let sizes = Arc::<Sizes>::default();
    let mut options = RuntimeOptions::default();
    (options.purge_every, options.count_every) = (None, count_every);
    options.observer = Some(sizes.clone());
    (Runtime::shared(store, options), sizes)
}

async fn pay(runtime: Runtime, key: String) {
    let key = Key::from_text(key).unwrap();
    let id = RecordId::new("tests", &ScopeId::new("alice"), "pay", &key);
    let request = Digester::new(["POST", "/payments"]).finish();
    match runtime.begin(id, request, &Policy::DEFAULT).await.unwrap() {
        Admission::Proceed(attempt) => {
            let ended = attempt.complete(encode(201, &[], &RecordedBody::None)).await;
            assert_eq!(ended, AttemptOutcome::Stored);
        }
        Admission::Rejected(verdict) => panic!("{verdict:?}"),
    }
}

/// Asserts that the observer gets the sizes of all batches that the store has executed.
async fn check(store: Arc<dyn Store>, counted: impl Fn() -> (usize, usize)) {
    let (runtime, sizes) = runtime(store, Some(Duration::from_millis(1)));
    for round in 0..2 {
        let pay = (0..KEYS).map(|key| pay(runtime.clone(), format!("{round} {key}")));
        pay.collect::<JoinSet<_>>().join_all().await;
        let expected = counted();
        let began = Instant::now();
        while sizes.totals() != expected {
            assert!(began.elapsed() < WAIT_LIMIT, "{:?} of {expected:?}", sizes.totals());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(sizes.totals().1, 2 * KEYS * (round + 1), "not every step was in a batch");
    }
    assert!(sizes.0.lock().unwrap().keys().any(|steps| *steps > 1), "no batch had two steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sizes_of_batches_in_sqlite_are_observed() {
    let file = subjects::sqlite::File::new();
    let store = batched_sqlite(file.open().await);
    store.migrate().await.unwrap();
    check(Arc::new(store.clone()), || {
        let counts = sqlite_batches(&store);
        (counts.batches, counts.steps)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sizes_of_batches_in_postgres_are_observed() {
    let (store, _) = subjects::postgres::store().await;
    let store = batched_postgres(store);
    check(Arc::new(store.clone()), || {
        let [claims, completions] = postgres_batches(&store);
        (claims.batches + completions.batches, claims.steps + completions.steps)
    })
    .await;
}

#[tokio::test]
async fn a_store_without_batches_has_no_sizes() {
    assert_eq!(MemoryStore::new().batches(), None);
    let file = subjects::sqlite::File::new();
    let store = file.open().await;
    assert_eq!(store.batches().map(|sizes| sizes.iter().count()), Some(0));
}
