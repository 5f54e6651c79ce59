//! The thread that drives the connections.

use super::*;

/// Blocks the thread that drives the connections when it wakes a task, once.
struct BlockDriver {
    begun: AtomicBool,
}

impl Wake for BlockDriver {
    fn wake(self: Arc<Self>) {
        let is_driver = thread::current().name() == Some("idempotency-pg");
        if is_driver && !self.begun.swap(true, Ordering::SeqCst) {
            // Longer than the time limit of a probe.
            thread::sleep(Duration::from_secs(4));
        }
    }
}

/// Fails if a probe waits for other work of the thread that drives the connections, such as that
/// for a large response, and a server is then considered down that has only a slow row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_driver_of_the_connections_does_not_make_a_server_count_as_down() {
    let (_, url) = store().await;
    sql(&url, SLOW.replace("CONDITION", "> 0").replace("pg_sleep(60)", "pg_sleep(7)")).await;
    let (url, proxy) = proxied(&url).await;
    let store = PostgresStore::options().group_commit(false).connect(&url).await.unwrap();
    // Opens connections, which are used within a second.
    let looked_up = [id(), id(), id(), id()];
    join_all(looked_up.iter().map(|id| store.look_up(id))).await;
    // So that a probe, of several round trips, is in progress for long enough.
    proxy.delay(Duration::from_millis(100));
    let before = proxy.connections();
    let slow = spawn(&store, |store| async move { store.claim(&id(), &slow()).await });
    timeout(WAIT_LIMIT, async {
        while proxy.connections() == before {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the slow call starts a probe");
    let block = Arc::new(BlockDriver { begun: AtomicBool::new(false) });
    let waker = Waker::from(block.clone());
    let id = id();
    let mut look_up = pin!(store.look_up(&id));
    for _ in 0..1000 {
        if look_up.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            || block.begun.load(Ordering::SeqCst)
        {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert!(block.begun.load(Ordering::SeqCst), "the driver is not blocked");
    assert_eq!(slow.await.unwrap().unwrap(), GRANTED);
}
