//! One server, its connections and its health.
//!
//! A connection is driven by a task of the runtime that opened it, so each runtime has its own
//! connections, one for each [`ConnectionRole`]. The health of a server is shared: what one runtime
//! finds out, the others need not wait for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{ConnectionInfo, Value};
use tokio::{runtime::Id, sync::watch, time::timeout};

pub(crate) use self::{
    connection::{Connection, ConnectionRole, Message},
    health::OPEN_TIMEOUT,
};
use self::{health::Health, waits::Waits};
use super::{
    lock::lock,
    requirements::{Requirements, compares_values},
    wire::Wire,
};
use crate::error::CallFailure;
use idempotent_core::store::ConnectionState;

mod connection;
mod health;
mod waits;

/// A server and its connections from all runtimes.
pub(crate) struct Node {
    info: ConnectionInfo,
    requirements: Arc<Requirements>,
    /// As of the last connection that was opened.
    compares_values: AtomicBool,
    health: Health,
    connections: Mutex<HashMap<(Id, ConnectionRole), Arc<ConnectionCell>>>,
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
            health: Health::default(),
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

    /// Makes the store believe that the server can do so or not, until the next connection is
    /// opened.
    #[cfg(feature = "internals")]
    pub(crate) fn expect_comparisons(&self, can: bool) {
        self.compares_values.store(can, Ordering::Relaxed);
    }

    /// Closes all connections and ends the calls on them: the server is no longer a master.
    pub(crate) fn retire(&self) {
        self.health.retire();
        let connections = std::mem::take(&mut *lock(&self.connections));
        connections.values().for_each(|cell| cell.waits.wake_all());
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.health.is_retired()
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
        state.live.clone().filter(|live| live.is_open_in(self.health.epoch()))
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
        let epoch = self.health.epoch();
        if self.is_retired() {
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
            let limit = self.health.connect_limit(state.opening.is_some())?;
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
            .map_err(|failure| failure.or_refusal_of("INFO"))?;
        self.verify(info)?;
        Ok(wire)
    }

    /// Verifies the server's settings, which are in the reply to `INFO`; returns the reply.
    pub(crate) fn verify(&self, info: Value) -> Result<String, CallFailure> {
        let info: String = redis::from_redis_value(info).map_err(CallFailure::unexpected_reply)?;
        let server = self.info.addr().to_string();
        self.requirements.verify(&info, &server).map_err(CallFailure::UnsuitableServer)?;
        self.compares_values.store(compares_values(&info), Ordering::Relaxed);
        Ok(info)
    }

    fn finish_open(
        &self,
        cell: &ConnectionCell,
        epoch: u64,
        opened: Result<Wire, CallFailure>,
    ) -> Result<Arc<Connection>, CallFailure> {
        let mut state = lock(&cell.state);
        state.opening = None;
        let wire = opened.inspect_err(|failure| self.health.connect_failed(failure))?;
        state.opened += 1;
        let connection = Arc::new(Connection::new(wire, epoch, state.opened, cell.waits.clone()));
        // A server that was retired meanwhile keeps no connection.
        if self.health.connected(epoch) {
            state.live = Some(connection.clone());
        }
        Ok(connection)
    }

    /// Sends a command, and waits for its response as long as bytes arrive at intervals of at most
    /// `within`.
    pub(crate) async fn exchange(
        &self,
        connection: &Connection,
        message: Message<'_>,
        within: Duration,
    ) -> Result<Value, CallFailure> {
        match connection.exchange(message, within, || self.health.epoch()).await {
            // What a server acknowledges after another has taken its place may be lost.
            Ok(_) if self.is_retired() => Err(CallFailure::ConnectionClosed),
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
            connection.end_calls();
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
            state.live.as_ref().is_some_and(|live| live.last_progress().elapsed() < within)
        })
    }

    /// Closes all connections and ends the calls on them, unless another call has already done so.
    fn mark_unresponsive(&self, epoch: u64) {
        if !self.health.end_epoch(epoch) {
            return;
        }
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        for cell in connections {
            let gone = lock(&cell.state).live.take_if(|live| live.epoch <= epoch);
            drop(gone);
            cell.waits.wake_all();
        }
    }
}
