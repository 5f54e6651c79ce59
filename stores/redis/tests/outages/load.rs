//! Requests to every shard of a cluster, and a control that measures how busy the machine is.
#![allow(clippy::panic, reason = "helpers of tests are tests")]

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{RecordId, protocol::ClaimOutcome, store::Store};
use idempotent_redis::RedisStore;
use tokio::{task::JoinSet, time::sleep};

use super::super::helpers::{describe, lease, request};
use test_support::servers::redis::Server;

/// One claim and completion.
pub(super) struct Call {
    pub(super) shard: usize,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) error: Option<String>,
}

pub(super) async fn claim_and_complete(store: &RedisStore, id: RecordId) -> Result<(), String> {
    let claim = request();
    match store.claim(&id, &claim).await {
        Ok(ClaimOutcome::Granted { .. }) => {}
        Ok(other) => return Err(format!("{other:?}")),
        Err(error) => return Err(describe(&error)),
    }
    let done = store.complete(&lease(id, &claim), &Bytes::from_static(b"done")).await;
    done.map(drop).map_err(|error| describe(&error))
}

/// Sends requests to every shard until it is dropped.
pub(super) struct Load {
    calls: Arc<Mutex<Vec<Call>>>,
    _workers: JoinSet<()>,
}

impl Load {
    pub(super) fn start(store: &RedisStore, keys: [Vec<RecordId>; 3]) -> Self {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let mut workers = JoinSet::new();
        for (shard, keys) in keys.into_iter().enumerate() {
            let keys = Arc::new(Mutex::new(keys));
            for _ in 0..4 {
                let (store, keys, calls) = (store.clone(), keys.clone(), calls.clone());
                workers.spawn(async move {
                    loop {
                        let Some(id) = keys.lock().unwrap().pop() else { return };
                        let began = Instant::now();
                        let error = claim_and_complete(&store, id).await.err();
                        calls.lock().unwrap().push(Call {
                            shard,
                            began,
                            took: began.elapsed(),
                            error,
                        });
                        sleep(Duration::from_millis(10)).await;
                    }
                });
            }
        }
        Self { calls, _workers: workers }
    }

    pub(super) fn count(&self, matches: impl Fn(&Call) -> bool) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| matches(call)).count()
    }

    pub(super) async fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        matches: impl Fn(&Call) -> bool,
    ) {
        let began = Instant::now();
        while self.count(&matches) == 0 {
            if began.elapsed() > limit {
                self.report(began);
                panic!("{what}: not within {limit:?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Prints the calls that began after `since`, for each shard.
    pub(super) fn report(&self, since: Instant) {
        for shard in 0..3 {
            let after = |call: &&Call| call.shard == shard && call.began >= since;
            let calls = self.calls.lock().unwrap();
            let failed: Vec<_> =
                calls.iter().filter(after).filter(|call| call.error.is_some()).collect();
            let longest = calls.iter().filter(after).map(|call| call.took).max();
            let passed = calls.iter().filter(after).count() - failed.len();
            println!(
                "shard {shard}: {passed} passed, {} failed, the longest took {longest:?}",
                failed.len()
            );
            if let Some(failed) = failed.last() {
                println!("  the last failure: {:?}", failed.error);
            }
        }
    }
}

/// As a control, writes to one server directly, as often as one worker of the load, until it is
/// dropped. This measures how busy the machine is.
pub(super) struct Control {
    writes: Arc<Mutex<Vec<(Instant, Duration)>>>,
    _worker: JoinSet<()>,
}

impl Control {
    pub(super) async fn start(server: &Server, id: RecordId) -> Self {
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let mut connection =
            server.client().get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let key = [b"idempotency:", id.as_bytes().as_slice()].concat();
        let writes: Arc<Mutex<Vec<_>>> = Arc::default();
        let mut worker = JoinSet::new();
        let written = writes.clone();
        worker.spawn(async move {
            loop {
                let began = Instant::now();
                redis::cmd("SET")
                    .arg(&key)
                    .arg("control")
                    .exec_async(&mut connection)
                    .await
                    .unwrap();
                written.lock().unwrap().push((began, began.elapsed()));
                sleep(Duration::from_millis(10)).await;
            }
        });
        Self { writes, _worker: worker }
    }

    pub(super) fn count_in(&self, window: &Range<Instant>) -> usize {
        self.writes.lock().unwrap().iter().filter(|(began, _)| window.contains(began)).count()
    }

    pub(super) fn longest(&self) -> Duration {
        self.writes.lock().unwrap().iter().map(|(_, took)| *took).max().unwrap_or_default()
    }
}
