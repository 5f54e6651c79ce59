//! Whether the server responds, and what follows when it does not.
//!
//! A server that is lost without a word (a host that dies, a link that drops packets) closes no connection: each call on it would wait
//! for its whole limit, once for each pooled connection. So a call that has had no response for [`SUSPICIOUS`] starts one probe for the
//! whole store: a new connection and a trivial statement. If the probe has a response, the server is only slow, and the call waits
//! on. If not, the store is down: pending calls end with their outcome unknown, new ones fail at once, and all connections are taken to be
//! dead, until a later probe succeeds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{Connection as _, PgConnection, Row, postgres::PgConnectOptions};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    driver::spawn,
    error::{Unanswered, is_reply},
};
use crate::clock::millis;

/// A call without a response for so long makes the server suspect.
const SUSPICIOUS: Duration = Duration::from_millis(500);
/// How long the server has to respond to a probe, at least. A busy machine may take more than a second
/// to start a session.
const PROBE: Duration = Duration::from_secs(2);
/// The most that this limit grows to while probes fail.
const LONGEST_PROBE: Duration = Duration::from_secs(4);
/// The pause between two probes while the store is down, on average.
const PAUSE: Duration = Duration::from_millis(500);
/// Longer waits are cut to this, so that no clock overflows, and no setting of the server's, which is in milliseconds of 31 bits.
pub(super) const LONGEST: Duration = Duration::from_secs(20 * 24 * 60 * 60);
/// Differs between two servers behind one address, and between two lives of one server.
const IDENTITY: &str = "SELECT pg_postmaster_start_time()::text";

/// What is known of the server.
pub(super) struct Health {
    options: PgConnectOptions,
    /// Whether the server may be behind a pooler. A pooler lets a client in and queues its statements
    /// while all of the server's sessions are in use.
    pooled: bool,
    state: watch::Sender<State>,
    probing: AtomicBool,
    /// How long the server has to respond to a probe, in milliseconds. The limit doubles with each
    /// probe that fails: a new connection takes several round trips, and a server that is far away
    /// must not be down for ever.
    probe_limit: AtomicU64,
}

#[derive(Clone, Default)]
struct State {
    down: bool,
    /// Counts how often all idle connections were taken to be dead.
    epoch: u64,
    /// Counts how often a probe has found that calls which are pending will have no response.
    losses: u64,
    /// The server's, once a probe has read it.
    identity: Option<String>,
}

impl State {
    fn lose(&mut self) {
        self.epoch += 1;
        self.losses += 1;
    }
}

/// The outcome of a probe.
enum Probe {
    /// The server responded, and with this identity if it let the probe in.
    Alive(Option<String>),
    Dead,
}

impl Health {
    pub(super) fn new(options: PgConnectOptions, pooled: bool) -> Arc<Self> {
        Arc::new(Self {
            options,
            pooled,
            state: watch::Sender::default(),
            probing: AtomicBool::new(false),
            probe_limit: AtomicU64::new(millis(PROBE)),
        })
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state.borrow().epoch
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.borrow().down
    }

    /// Takes all connections to be dead that are idle now. Calls that are pending may still have their response.
    pub(super) fn suspect_idle(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Waits for the server's response to a call for at most `limit`.
    ///
    /// # Errors
    /// The call's own; [`Unanswered`] when the store is down, or the time is over: the outcome is unknown then.
    pub(super) async fn exchange<T>(
        self: &Arc<Self>,
        limit: Duration,
        call: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, sqlx::Error> {
        let losses = {
            let state = self.state.borrow();
            if state.down {
                return Err(Unanswered::Down.into());
            }
            state.losses
        };
        let mut call = std::pin::pin!(call);
        match timeout(SUSPICIOUS.min(limit), &mut call).await {
            Ok(response) => response,
            // Boxed: keeps the callers' futures small, since hardly any call takes so long.
            Err(_) => Box::pin(self.wait_on(losses, limit.saturating_sub(SUSPICIOUS), call)).await,
        }
    }

    async fn wait_on<T>(
        self: &Arc<Self>,
        losses: u64,
        limit: Duration,
        mut call: impl Future<Output = Result<T, sqlx::Error>> + Unpin,
    ) -> Result<T, sqlx::Error> {
        let deadline = Instant::now() + limit.min(LONGEST);
        let mut state = self.state.subscribe();
        loop {
            self.probe();
            tokio::select! {
                // A response that is there counts, whatever the probe has found.
                biased;
                response = timeout_at(deadline.min(Instant::now() + SUSPICIOUS), &mut call) => match response {
                    Ok(response) => return response,
                    Err(_) if Instant::now() >= deadline => return Err(Unanswered::TooSlow.into()),
                    Err(_) => {}
                },
                _ = state.wait_for(|state| state.losses != losses) => return Err(Unanswered::Down.into()),
            }
        }
    }

    /// Starts a probe unless one is under way. While the store is down it goes on, by a task that ends with the store.
    pub(super) fn probe(self: &Arc<Self>) {
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let health = Arc::downgrade(self);
        spawn(async move {
            while let Some(health) = health.upgrade() {
                let probe = health.look().await;
                if health.learn(probe) {
                    health.probing.store(false, Ordering::Release);
                    return;
                }
                drop(health);
                sleep(PAUSE.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
            }
        });
    }

    /// How long the server has to respond to a probe.
    pub(super) fn probe_limit(&self) -> Duration {
        Duration::from_millis(self.probe_limit.load(Ordering::Relaxed))
    }

    /// Probes the server, and sets the limit of the next probe.
    async fn look(&self) -> Probe {
        let (mut probe, mut took) = self.timed_probe().await;
        if self.is_down() && took > PROBE && matches!(probe, Probe::Alive(_)) {
            // Part of that time may be the rest of the outage.
            (probe, took) = self.timed_probe().await;
        }
        let limit = self.probe_limit();
        let next = match &probe {
            Probe::Alive(Some(_)) => PROBE.max(2 * took),
            Probe::Alive(None) => limit,
            Probe::Dead => limit.max(LONGEST_PROBE.min(2 * limit)),
        };
        self.probe_limit.store(millis(next), Ordering::Relaxed);
        probe
    }

    async fn timed_probe(&self) -> (Probe, Duration) {
        let started = Instant::now();
        let probe = probed(&self.options, self.pooled, self.probe_limit()).await;
        (probe, started.elapsed())
    }

    /// Takes note of a probe's outcome; returns whether the server is alive.
    fn learn(&self, probe: Probe) -> bool {
        self.state.send_if_modified(|state| match &probe {
            Probe::Alive(identity) => {
                let replaced = identity.is_some() && state.identity.is_some() && *identity != state.identity;
                if identity.is_some() {
                    state.identity.clone_from(identity);
                }
                let changes = state.down || replaced;
                if changes {
                    tracing::info!("the Postgres server responds; connections are opened anew");
                    state.lose();
                    state.down = false;
                }
                changes
            }
            Probe::Dead if !state.down => {
                tracing::warn!("the Postgres server does not respond; calls fail at once until it does");
                state.lose();
                state.down = true;
                true
            }
            Probe::Dead => false,
        });
        matches!(probe, Probe::Alive(_))
    }
}

async fn probed(options: &PgConnectOptions, pooled: bool, limit: Duration) -> Probe {
    let mut connected = false;
    let look = async {
        let mut connection = PgConnection::connect_with(options).await?;
        connected = true;
        let identity = sqlx::raw_sql(IDENTITY).fetch_one(&mut connection).await?.try_get::<String, _>(0)?;
        // The server has noticed by itself if this fails.
        let _ = connection.close().await;
        Ok(identity)
    };
    match timeout(limit, look).await {
        Ok(Ok(identity)) => Probe::Alive(Some(identity)),
        Ok(Err(error)) if is_reply(&error) => Probe::Alive(None),
        // All of the server's sessions may be in use, and the statement queued.
        Err(_) if pooled && connected => Probe::Alive(None),
        Ok(Err(_)) | Err(_) => Probe::Dead,
    }
}
