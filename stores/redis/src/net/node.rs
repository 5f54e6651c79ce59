//! One server, its connections and its health.
//!
//! A connection is driven by a task of the runtime that opened it, so each runtime has its own
//! connections, one for each [`ConnectionRole`]. The health of a server is shared: what one runtime
//! finds out, the others need not wait for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{ConnectionInfo, Value};
use tokio::{
    runtime::Id,
    sync::watch,
    time::{Instant, timeout},
};

pub(crate) use self::route::{ConnectionRoute, Message};
use self::waits::Waits;
use super::{
    requirements::{Requirements, compares_values},
    wire::Wire,
};
use crate::error::CallFailure;

mod exchange;
mod route;
mod waits;

/// How long opening a connection and verifying the server may take.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a call waits for a connection to a server that did not respond before.
const PROBE_WAIT: Duration = Duration::from_millis(500);
/// The first pause after a failed connection attempt; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The epoch of a server that is no longer used.
const RETIRED: u64 = u64::MAX;

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionRole {
    /// Calls for requests.
    Requests,
    /// Renewals, which must not queue behind large recordings.
    Renewals,
    /// A call that waits for replicas and blocks its connection meanwhile.
    Replication(usize),
}

/// A server and its connections from all runtimes.
pub(crate) struct Node {
    info: ConnectionInfo,
    requirements: Arc<Requirements>,
    /// As of the last connection that was opened.
    compares_values: AtomicBool,
    /// Connections of an earlier epoch are closed and calls on them end. A new epoch begins when
    /// the server does not respond.
    epoch: AtomicU64,
    outage: Mutex<Option<Outage>>,
    connections: Mutex<HashMap<(Id, ConnectionRole), Arc<ConnectionCell>>>,
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

/// One runtime's connection for one role.
struct ConnectionCell {
    state: Mutex<CellState>,
    waits: Arc<Waits>,
}

#[derive(Default)]
struct CellState {
    live: Option<Arc<Connection>>,
    /// How many connections have been opened.
    opened: u64,
    opening: Option<PendingConnection>,
}

type PendingConnection = watch::Receiver<Option<Result<Arc<Connection>, CallFailure>>>;

/// A connection that any number of calls share.
pub(crate) struct Connection {
    wire: Wire,
    epoch: u64,
    number: u64,
    waits: Arc<Waits>,
    /// Whether calls on it end, because nothing arrives on it although the server responds.
    is_silent: AtomicBool,
}

impl Connection {
    fn is_open_in(&self, epoch: u64) -> bool {
        self.epoch == epoch && !self.is_silent.load(Ordering::Acquire)
    }
}

impl ConnectionCell {
    /// A cell for the current runtime.
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), waits: Waits::start() })
    }
}

impl Node {
    pub(crate) fn new(info: ConnectionInfo, requirements: Arc<Requirements>) -> Self {
        Self {
            info,
            requirements,
            compares_values: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            outage: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Whether the server can compare a value before it replaces it.
    pub(crate) fn compares_values(&self) -> bool {
        self.compares_values.load(Ordering::Relaxed)
    }

    /// Closes all connections and ends the calls on them: the server is no longer a master.
    pub(crate) fn retire(&self) {
        self.epoch.store(RETIRED, Ordering::Release);
        let connections = std::mem::take(&mut *lock(&self.connections));
        connections.values().for_each(|cell| cell.waits.wake_all());
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.epoch() == RETIRED
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Closes the connections that a runtime drove.
    pub(crate) fn close_connections_of(&self, runtime: Id) {
        let mut connections = lock(&self.connections);
        let gone: Vec<_> = connections.extract_if(|(of, _), _| *of == runtime).collect();
        drop(connections);
        drop(gone);
    }

    /// Returns this runtime's connection for a role, if it is open.
    pub(crate) fn open_connection(
        &self,
        runtime: Id,
        role: ConnectionRole,
    ) -> Option<Arc<Connection>> {
        let connections = lock(&self.connections);
        let state = lock(&connections.get(&(runtime, role))?.state);
        state.live.clone().filter(|live| live.is_open_in(self.epoch()))
    }

    /// Returns this runtime's connection for a role; opens it if there is none.
    ///
    /// While the server is down, calls fail at once, except for about one each half second, which
    /// tries to connect.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        runtime: Id,
        role: ConnectionRole,
    ) -> Result<Arc<Connection>, CallFailure> {
        let epoch = self.epoch();
        if epoch == RETIRED {
            return Err(CallFailure::ConnectionClosed);
        }
        let cell = lock(&self.connections)
            .entry((runtime, role))
            .or_insert_with(ConnectionCell::new)
            .clone();
        let (mut opening, limit) = {
            let mut state = lock(&cell.state);
            if let Some(live) = state.live.as_ref().filter(|live| live.is_open_in(epoch)) {
                return Ok(live.clone());
            }
            let limit = self.connect_limit(state.opening.is_some())?;
            let opening = match &state.opening {
                Some(opening) => opening.clone(),
                None => state.opening.insert(self.open(cell.clone(), epoch)).clone(),
            };
            (opening, limit)
        };
        match timeout(limit, opening.wait_for(Option::is_some)).await {
            Ok(Ok(opened)) => opened.clone().unwrap_or(Err(CallFailure::ConnectTimeout)),
            // The runtime is shutting down, or connecting takes longer than this call may wait.
            Ok(Err(_)) | Err(_) => Err(CallFailure::ConnectTimeout),
        }
    }

    /// Returns how long a call may wait for a connection, or an error if the server must not be
    /// tried now.
    fn connect_limit(&self, opening: bool) -> Result<Duration, CallFailure> {
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

    /// Opens a connection in a separate task, which continues if the calls that wait for it end.
    fn open(self: &Arc<Self>, cell: Arc<ConnectionCell>, epoch: u64) -> PendingConnection {
        let (done, opening) = watch::channel(None);
        let node = self.clone();
        tokio::spawn(async move {
            let opened = timeout(OPEN_TIMEOUT, node.open_verified())
                .await
                .unwrap_or(Err(CallFailure::ConnectTimeout));
            let opened = node.finish_open(&cell, epoch, opened);
            done.send_replace(Some(opened));
        });
        opening
    }

    async fn open_verified(&self) -> Result<Wire, CallFailure> {
        let mut wire = Wire::open(&self.info, None, OPEN_TIMEOUT).await?;
        let info = Message::Command(&redis::cmd("INFO"))
            .send(&mut wire.commands)
            .await
            .map_err(|failure| failure.or_missing_privilege("INFO"))?;
        self.verify(info)?;
        Ok(wire)
    }

    /// Verifies the server's settings, which are in the reply to `INFO`.
    pub(crate) fn verify(&self, info: Value) -> Result<(), CallFailure> {
        let info: String = redis::from_redis_value(info).map_err(CallFailure::unexpected_reply)?;
        self.requirements.verify(&info).map_err(CallFailure::UnsuitableServer)?;
        self.compares_values.store(compares_values(&info), Ordering::Relaxed);
        Ok(())
    }

    fn finish_open(
        &self,
        cell: &ConnectionCell,
        epoch: u64,
        opened: Result<Wire, CallFailure>,
    ) -> Result<Arc<Connection>, CallFailure> {
        let mut state = lock(&cell.state);
        state.opening = None;
        let mut outage = lock(&self.outage);
        match opened {
            Ok(wire) => {
                *outage = None;
                state.opened += 1;
                let (number, waits) = (state.opened, cell.waits.clone());
                let connection = Arc::new(Connection {
                    wire,
                    epoch,
                    number,
                    waits,
                    is_silent: AtomicBool::new(false),
                });
                // A server that was retired meanwhile keeps no connection.
                if self.epoch() == epoch {
                    state.live = Some(connection.clone());
                }
                Ok(connection)
            }
            Err(failure) => {
                let pause = outage.as_ref().map_or(Duration::ZERO, |outage| outage.pause);
                let pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                // Random, so that the workers of one process do not all reconnect at once.
                let retry_at = Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                *outage = Some(Outage {
                    failure: failure.clone(),
                    pause,
                    retry_at,
                    wait_until: Instant::now(),
                });
                Err(failure)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
