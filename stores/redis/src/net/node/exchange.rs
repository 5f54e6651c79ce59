//! Sending a command, and what its failure says about the server and the connection.

use std::{future::poll_fn, pin::pin, sync::atomic::Ordering, task::Poll, time::Duration};

use redis::Value;
use tokio::time::Instant;

use super::{CallFailure, Connection, ConnectionRole, Message, Node, Outage, PROBE_WAIT, lock};
use idempotent_core::store::ConnectionState;

impl Node {
    /// Sends a command, and waits for its response as long as bytes arrive at intervals of at most
    /// `within`.
    pub(crate) async fn exchange(
        &self,
        connection: &Connection,
        message: Message<'_>,
        within: Duration,
    ) -> Result<Value, CallFailure> {
        let (mut commands, traffic) = (connection.wire.commands.clone(), &connection.wire.traffic);
        let written = traffic.written();
        let mut response = pin!(message.send(&mut commands));
        let mut call = connection.waits.call(within);
        let value = poll_fn(|cx| match response.as_mut().poll(cx) {
            Poll::Pending => {
                let is_closed = || !connection.is_open_in(self.epoch());
                call.poll_end(cx, is_closed, || traffic.last_progress()).map(Err)
            }
            ready @ Poll::Ready(_) => ready,
        })
        .await;
        match value {
            // What a server acknowledges after another has taken its place may be lost.
            Ok(_) if self.is_retired() => Err(CallFailure::ConnectionClosed),
            Err(lost) if lost.is_connection_lost() && traffic.written() == written => {
                Err(CallFailure::NotSent(Box::new(lost)))
            }
            value => value,
        }
    }

    /// Updates the state of the server and its connections after a call that failed, for which
    /// nothing had arrived for as long as `within` if the failure is a timeout.
    pub(crate) fn record_failure(
        &self,
        role: ConnectionRole,
        connection: &Connection,
        failure: &CallFailure,
        within: Duration,
    ) {
        if matches!(failure, CallFailure::ResponseTimeout) {
            if !self.responds_within(within) {
                return self.mark_unresponsive(connection.epoch);
            }
            connection.is_silent.store(true, Ordering::Release);
            connection.waits.wake_all();
        } else if failure.class().connection == ConnectionState::Good {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(cell) = lock(&self.connections).get(&(runtime.id(), role)).cloned()
        {
            // Another call may have replaced the connection already.
            let gone = lock(&cell.state).live.take_if(|live| live.number == connection.number);
            drop(gone);
        }
    }

    /// Whether bytes have arrived on some connection in this time.
    fn responds_within(&self, within: Duration) -> bool {
        let cells: Vec<_> = lock(&self.connections).values().cloned().collect();
        cells.iter().any(|cell| {
            let state = lock(&cell.state);
            state
                .live
                .as_ref()
                .is_some_and(|live| live.wire.traffic.last_progress().elapsed() < within)
        })
    }

    /// Closes all connections and ends the calls on them, unless another call has already done so.
    fn mark_unresponsive(&self, epoch: u64) {
        // The lock is taken first: calls that end look for another connection at once, and must
        // find the server marked as down.
        let mut outage = lock(&self.outage);
        let (next, order) = (epoch.saturating_add(1), Ordering::AcqRel);
        if self.epoch.compare_exchange(epoch, next, order, Ordering::Acquire).is_ok() {
            let (retry_at, wait_until) = (Instant::now(), Instant::now() + PROBE_WAIT);
            *outage = Some(Outage {
                failure: CallFailure::ResponseTimeout,
                pause: Duration::ZERO,
                retry_at,
                wait_until,
            });
            drop(outage);
            let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
            for cell in connections {
                let gone = lock(&cell.state).live.take_if(|live| live.epoch <= epoch);
                drop(gone);
                cell.waits.wake_all();
            }
        }
    }
}
