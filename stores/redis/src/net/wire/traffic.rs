//! What a connection has carried, and when.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use crate::error::CallFailure;

/// What a connection has carried.
pub(crate) struct Traffic {
    opened: Instant,
    /// When bytes last arrived, or left after the peer had not accepted any: in nanoseconds after
    /// `opened`.
    progress: AtomicU64,
    /// How many bytes have been written.
    written: AtomicU64,
}

impl Traffic {
    pub(crate) fn new() -> Arc<Self> {
        let (progress, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { opened: Instant::now(), progress, written })
    }

    pub(crate) fn mark_progress(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.progress.store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn mark_written(&self, bytes: usize) {
        self.written.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// When bytes last arrived, or left after the peer had not accepted any.
    pub(crate) fn last_progress(&self) -> Instant {
        self.opened + Duration::from_nanos(self.progress.load(Ordering::Relaxed))
    }

    /// How many bytes have been written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Waits for a response, which may take longer than `limit` while bytes arrive.
    pub(crate) async fn wait_for<T>(
        &self,
        response: impl Future<Output = Result<T, CallFailure>>,
        limit: Duration,
    ) -> Result<T, CallFailure> {
        let mut response = pin!(response);
        let mut end = Instant::now() + limit;
        loop {
            if let Ok(response) = timeout_at(end, response.as_mut()).await {
                return response;
            }
            let extended = self.last_progress() + limit;
            if extended <= Instant::now() {
                return Err(CallFailure::ConnectTimeout);
            }
            end = extended;
        }
    }
}
