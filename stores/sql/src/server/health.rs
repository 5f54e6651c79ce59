//! Detects a server that does not respond.
//!
//! A server that is lost silently (a dead host, a link that drops packets) closes no connection, so
//! each call on it would wait for its whole limit, once for each pooled connection. A call without
//! a response for `PROBE_AFTER` therefore starts one probe for the whole store: a new connection
//! and a trivial statement. If the probe gets a response, the server is only slow, and the call
//! waits on. If not, the server is down: pending calls end with an unknown outcome, new ones fail
//! at once, and all connections are presumed dead, until a later probe succeeds.
//!
//! Limits count the time in which this process runs: one that is starved of processor time must not
//! take its own delay for the server's.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sqlx::Connection;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{io_thread::IoThread, no_response::NoResponse};
use idempotent_core::clock::millis;

/// How long a call waits for a response before it starts a probe.
const PROBE_AFTER: Duration = Duration::from_millis(500);
/// The minimum time limit of a probe. A busy machine may take more than a second to start a
/// session.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum time limit of a probe, to which it grows while probes fail.
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the server may take to respond to a ping.
pub const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// The average pause between two probes while the server is down.
const PAUSE: Duration = Duration::from_millis(500);
/// Longer waits are cut to this, so that no clock overflows, and no server setting, which is a
/// 31-bit number of milliseconds.
pub const MAX_WAIT: Duration = Duration::from_secs(20 * 24 * 60 * 60);

/// How a store probes its server.
#[async_trait]
pub trait ServerProbe: Send + Sync {
    /// The name of the server in logs.
    fn server(&self) -> &'static str;

    /// Opens a new connection and executes a trivial statement, [`within`](super::within) this
    /// time.
    async fn send(&self, limit: Duration) -> Probe;
}

/// What the store knows of the server's health.
pub struct ServerHealth {
    server: Box<dyn ServerProbe>,
    thread: &'static IoThread,
    state: watch::Sender<State>,
    probing: AtomicBool,
    /// The time limit of a probe, in milliseconds. It doubles with each failed probe: a new
    /// connection takes several round trips, and a distant server must not count as down forever.
    probe_limit: AtomicU64,
}

#[derive(Clone, Default)]
struct State {
    down: bool,
    /// How often all idle connections were presumed dead.
    epoch: u64,
    /// How often a probe has found that pending calls will get no response.
    losses: u64,
    /// The server's identity, once a probe has read it.
    identity: Option<String>,
}

impl State {
    fn invalidate(&mut self) {
        self.epoch += 1;
        self.losses += 1;
    }
}

/// The outcome of a probe.
#[derive(Debug)]
pub enum Probe {
    /// The server responded; with its identity if it accepted the connection. The identity differs
    /// between two servers behind one address, and between two starts of one server.
    Alive(Option<String>),
    /// There was no response.
    Dead,
}

impl ServerHealth {
    /// The health of a server that was not probed yet; probes run on this thread.
    pub fn new(server: Box<dyn ServerProbe>, thread: &'static IoThread) -> Arc<Self> {
        Arc::new(Self {
            server,
            thread,
            state: watch::Sender::default(),
            probing: AtomicBool::new(false),
            probe_limit: AtomicU64::new(millis(PROBE_TIMEOUT)),
        })
    }

    /// Changes whenever all connections that were opened before are presumed dead.
    pub fn epoch(&self) -> u64 {
        self.state.borrow().epoch
    }

    /// Whether the server is known not to respond.
    pub fn is_down(&self) -> bool {
        self.state.borrow().down
    }

    /// Presumes all idle connections dead. Pending calls may still get their response.
    pub fn invalidate_idle(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Whether the server responds to a ping on a connection.
    pub async fn responds<C: Connection>(self: &Arc<Self>, connection: &mut C) -> bool {
        if self.is_down() {
            return false;
        }
        match timeout(PING_TIMEOUT, connection.ping()).await {
            Ok(pinged) => pinged.is_ok(),
            Err(_) => {
                // The other idle connections use the same network path and are presumed dead too.
                self.invalidate_idle();
                self.probe();
                false
            }
        }
    }

    /// Waits for the server's response to a call for at most `limit`.
    ///
    /// # Errors
    /// The error of the call, or [`NoResponse`] if the server is down or the time is over; the
    /// outcome is then unknown.
    pub async fn exchange<T>(
        self: &Arc<Self>,
        limit: Duration,
        call: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, sqlx::Error> {
        let losses = {
            let state = self.state.borrow();
            if state.down {
                return Err(NoResponse::Down.into());
            }
            state.losses
        };
        let mut call = std::pin::pin!(call);
        match timeout(PROBE_AFTER.min(limit), &mut call).await {
            Ok(response) => response,
            // Boxed: keeps the caller's future small on the fast path.
            Err(_) => Box::pin(self.wait_on(losses, limit.saturating_sub(PROBE_AFTER), call)).await,
        }
    }

    async fn wait_on<T>(
        self: &Arc<Self>,
        losses: u64,
        limit: Duration,
        mut call: impl Future<Output = Result<T, sqlx::Error>> + Unpin,
    ) -> Result<T, sqlx::Error> {
        let mut left = limit;
        let mut state = self.state.subscribe();
        loop {
            self.probe();
            let part = PROBE_AFTER.min(left);
            tokio::select! {
                // A response that has arrived counts, whatever the probe has found.
                biased;
                response = timeout(part, &mut call) => {
                    if let Ok(response) = response {
                        return response;
                    }
                    left -= part;
                    if left.is_zero() {
                        return Err(NoResponse::TimedOut.into());
                    }
                }
                _ = state.wait_for(|state| state.losses != losses) => {
                    return Err(NoResponse::Down.into());
                }
            }
        }
    }

    /// Starts a probe unless one is running. While the server is down, its task goes on probing
    /// until the store is dropped.
    pub fn probe(self: &Arc<Self>) {
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let health = Arc::downgrade(self);
        self.thread.spawn_probe(async move {
            while let Some(health) = health.upgrade() {
                let probe = health.run_probe().await;
                if health.apply_probe(probe) {
                    health.probing.store(false, Ordering::Release);
                    return;
                }
                drop(health);
                sleep(PAUSE.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
            }
        });
    }

    /// The time limit of the next probe.
    pub fn probe_limit(&self) -> Duration {
        Duration::from_millis(self.probe_limit.load(Ordering::Relaxed))
    }

    /// Probes the server, and sets the time limit of the next probe.
    async fn run_probe(&self) -> Probe {
        let (mut probe, mut took) = self.timed_probe().await;
        if self.is_down() && took > PROBE_TIMEOUT && matches!(probe, Probe::Alive(_)) {
            // The measured time may include the rest of the outage.
            (probe, took) = self.timed_probe().await;
        }
        let limit = self.probe_limit();
        let next = match &probe {
            Probe::Alive(Some(_)) => PROBE_TIMEOUT.max(2 * took),
            Probe::Alive(None) => limit,
            Probe::Dead => limit.max(MAX_PROBE_TIMEOUT.min(2 * limit)),
        };
        self.probe_limit.store(millis(next), Ordering::Relaxed);
        probe
    }

    async fn timed_probe(&self) -> (Probe, Duration) {
        let started = Instant::now();
        let limit = self.probe_limit();
        let probe = self.server.send(limit).await;
        // What took longer was not the server.
        (probe, started.elapsed().min(limit))
    }

    /// Applies the outcome of a probe; returns whether the server is alive.
    fn apply_probe(&self, probe: Probe) -> bool {
        self.state.send_if_modified(|state| match &probe {
            Probe::Alive(identity) => {
                let replaced =
                    identity.is_some() && state.identity.is_some() && *identity != state.identity;
                if identity.is_some() {
                    state.identity.clone_from(identity);
                }
                let changes = state.down || replaced;
                if changes {
                    tracing::info!(
                        "the {} server responds again; reopening all connections",
                        self.server.server()
                    );
                    state.invalidate();
                    state.down = false;
                }
                changes
            }
            Probe::Dead if !state.down => {
                tracing::warn!(
                    "the {} server does not respond; calls fail until it does",
                    self.server.server()
                );
                state.invalidate();
                state.down = true;
                true
            }
            Probe::Dead => false,
        });
        matches!(probe, Probe::Alive(_))
    }
}

#[cfg(test)]
mod tests;
