//! Calls whose process does not run all the time.

use std::future::pending;

use tokio::time::advance;

use super::*;

static THREAD: IoThread = IoThread::new("test", "idempotency-test", "idempotency-test-probe");
const LIMIT: Duration = Duration::from_secs(10);

struct Alive;

#[async_trait]
impl ServerProbe for Alive {
    fn server(&self) -> &'static str {
        "test"
    }

    async fn send(&self, _limit: Duration) -> Probe {
        Probe::Alive(None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_waited_for_if_the_process_did_not_run_for_longer_than_its_limit() {
    let health = ServerHealth::new(Box::new(Alive), &THREAD);
    let call = async {
        sleep(2 * PROBE_AFTER).await;
        // As if the process was suspended: its clock goes on.
        advance(10 * LIMIT).await;
        sleep(PROBE_AFTER / 5).await;
        Ok(7)
    };
    assert_eq!(health.exchange(LIMIT, call).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_response_ends_after_its_limit() {
    let health = ServerHealth::new(Box::new(Alive), &THREAD);
    for limit in [LIMIT, PROBE_AFTER, PROBE_AFTER / 2, PROBE_AFTER * 3 / 2] {
        let started = Instant::now();
        let error = health.exchange(limit, pending::<Result<(), _>>()).await.unwrap_err();
        assert!(matches!(NoResponse::of(&error), Some(NoResponse::TimedOut)), "{error:?}");
        let took = started.elapsed();
        assert!(took >= limit && took < limit + PROBE_AFTER / 10, "{limit:?}: {took:?}");
    }
}
