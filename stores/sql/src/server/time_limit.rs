//! A time limit that does not count the time in which this process did not run.
//!
//! On a busy or suspended machine a process gets no processor time for a while. Its timers then
//! expire all at once, before it has read what the server has sent, and before it could send what
//! the server waits for. That says nothing about the server.

use std::time::Duration;

use tokio::time::timeout;

/// A limit is counted in parts of this length. What a part lasts longer, the process did not run.
const TICK: Duration = Duration::from_millis(50);

/// Waits for `work` for at most `limit`; `None` if that time is over.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut left = limit;
    loop {
        let tick = TICK.min(left);
        if let Ok(done) = timeout(tick, &mut work).await {
            return Some(done);
        }
        left -= tick;
        if left.is_zero() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, advance, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_did_not_run_does_not_count() {
        let work = async {
            sleep(LIMIT / 2).await;
            // As if the process was suspended: its clock goes on.
            advance(10 * LIMIT).await;
            sleep(LIMIT / 4).await;
            7
        };
        assert_eq!(within(LIMIT, work).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_runs_counts() {
        let started = Instant::now();
        assert_eq!(within(LIMIT, pending::<()>()).await, None);
        assert!(started.elapsed() < LIMIT + TICK, "{:?}", started.elapsed());
        assert_eq!(within(Duration::ZERO, pending::<()>()).await, None);
    }
}
