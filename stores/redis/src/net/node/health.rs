//! Whether a server responds, as all runtimes see it.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{error::CallFailure, net::lock::lock};

/// How long opening a connection and verifying the server may take.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a call waits for a connection to a server that did not respond before.
const PROBE_WAIT: Duration = Duration::from_millis(500);
/// The first pause after a failed connection attempt; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The epoch of a server that is no longer used.
const RETIRED: u64 = u64::MAX;

/// The health of a server.
#[derive(Default)]
pub(crate) struct Health {
    /// Connections of an earlier epoch are closed and calls on them end. A new epoch begins when
    /// the server does not respond.
    epoch: AtomicU64,
    outage: Mutex<Option<Outage>>,
}

/// The state of a server that could not be reached or did not respond.
struct Outage {
    failure: CallFailure,
    pause: Duration,
    /// When the next call tries to connect again.
    retry_at: Instant,
    /// Until then calls wait for a connection, since the server may only have been slow.
    wait_until: Instant,
}

impl Health {
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Ends the last epoch: the server is no longer a master.
    pub(crate) fn retire(&self) {
        self.epoch.store(RETIRED, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.epoch() == RETIRED
    }

    /// Returns how long a call may wait for a connection, or an error if the server must not be
    /// tried now.
    pub(crate) fn connect_limit(&self, opening: bool) -> Result<Duration, CallFailure> {
        let now = Instant::now();
        match &mut *lock(&self.outage) {
            None => Ok(OPEN_TIMEOUT),
            Some(outage) if now < outage.wait_until => Ok(outage.wait_until - now),
            Some(outage) if !opening && now >= outage.retry_at => {
                outage.retry_at = now + LONGEST_PAUSE;
                Ok(PROBE_WAIT)
            }
            Some(outage) => Err(CallFailure::BackingOff(Box::new(outage.failure.clone()))),
        }
    }

    /// A connection was opened. Returns whether this is still the epoch in which that began.
    pub(crate) fn connected(&self, epoch: u64) -> bool {
        *lock(&self.outage) = None;
        self.epoch() == epoch
    }

    /// No connection could be opened.
    pub(crate) fn connect_failed(&self, failure: &CallFailure) {
        let mut outage = lock(&self.outage);
        let pause = outage.as_ref().map_or(Duration::ZERO, |outage| outage.pause);
        let pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let now = Instant::now();
        // Random, so that the workers of one process do not all reconnect at once.
        let retry_at = now + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        *outage = Some(Outage { failure: failure.clone(), pause, retry_at, wait_until: now });
    }

    /// Ends an epoch because the server did not respond in it. Returns false if another call has
    /// already done so.
    pub(crate) fn end_epoch(&self, epoch: u64) -> bool {
        // The lock is taken first: calls that end look for another connection at once, and must
        // find the server marked as down.
        let mut outage = lock(&self.outage);
        let (next, order) = (epoch.saturating_add(1), Ordering::AcqRel);
        let ended = self.epoch.compare_exchange(epoch, next, order, Ordering::Acquire).is_ok();
        if ended {
            let now = Instant::now();
            *outage = Some(Outage {
                failure: CallFailure::ResponseTimeout,
                pause: Duration::ZERO,
                retry_at: now,
                wait_until: now + PROBE_WAIT,
            });
        }
        ended
    }
}
