//! The connections of a store: one for each runtime and lane.
//!
//! A connection is driven by a task of the runtime that it was made on. Each runtime has its own, so that one that stops takes
//! nobody else's away, and so that each worker of a server writes for itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Once, PoisonError, Weak},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::{
    runtime::{Handle, Id},
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    address::Address,
    error::{Failure, is_broken, is_forgotten},
    scripts::{Arg, Script},
    server,
    wire::Wire,
};

/// How long a connection may take to be made, with all that is asked of the server at its start.
const OPENING: Duration = Duration::from_secs(2);
/// The first pause after a connection could not be made; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// The steps of requests.
    Work,
    /// Renewals, which wait behind nobody's recordings.
    Renewal,
    /// A claim that waits for replicas, and blocks its connection meanwhile.
    Waiting(usize),
}

/// Whether a step may be sent once more when its connection is lost, since taking it twice comes to the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Yes,
    No,
}

/// A connection, and which of its slot's it is.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    number: u64,
}

type Slots = Mutex<HashMap<Id, HashMap<Lane, Arc<Slot>>>>;

#[derive(Default)]
struct Slot {
    live: Mutex<Option<Connection>>,
    opening: tokio::sync::Mutex<Opening>,
}

#[derive(Default)]
struct Opening {
    /// How many connections there have been.
    made: u64,
    pause: Duration,
    failed: Option<(Instant, Failure)>,
}

/// How long a server may take.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// To answer.
    pub(super) responding: Duration,
    /// To hear of its replicas, on top of that.
    pub(super) replicating: Duration,
}

/// The connections of a store and of its clones.
pub(super) struct Connections {
    address: Arc<Address>,
    times: Times,
    warned: Once,
    slots: Arc<Slots>,
    /// Its end tells the runtimes' tasks that there is nothing left to forget.
    open: watch::Sender<()>,
    /// A file of the scripts, and what stands in its place.
    #[cfg(test)]
    pub(super) altered: Option<(String, String)>,
}

impl Connections {
    pub(super) fn new(address: Arc<Address>, times: Times) -> Self {
        Self {
            address,
            times,
            warned: Once::new(),
            slots: Arc::default(),
            open: watch::Sender::new(()),
            #[cfg(test)]
            altered: None,
        }
    }

    /// Connections to the same servers, with other times.
    pub(super) fn with(&self, change: impl FnOnce(Times) -> Times) -> Self {
        Self::new(self.address.clone(), change(self.times))
    }

    /// Makes the first connection, or says why there is none.
    pub(super) async fn first(&self) -> Result<(), Failure> {
        let slot = self.slot(Lane::Work)?;
        self.connection(&slot, Lane::Work).await.map(|_| ())
    }

    /// Calls a script on a key, by its hash first.
    pub(super) async fn call(
        &self,
        (lane, again): (Lane, Again),
        script: &Script,
        key: &[u8],
        args: &[Arg<'_>],
    ) -> Result<(Value, Connection), Failure> {
        #[cfg(test)]
        let altered = self.altered.as_ref().map(|altered| script.altered(altered));
        #[cfg(test)]
        let script = altered.as_ref().unwrap_or(script);
        match self.send((lane, again), &script.by_hash(key, args)).await {
            Err(Failure::Redis(error)) if is_forgotten(&error) => {
                self.send((lane, again), &script.by_code(key, args)).await
            }
            answered => answered,
        }
    }

    /// Sends a command, and says which connection took it.
    pub(super) async fn send(
        &self,
        (lane, again): (Lane, Again),
        command: &Cmd,
    ) -> Result<(Value, Connection), Failure> {
        let slot = self.slot(lane)?;
        let mut left = if again == Again::Yes { 1 } else { 0 };
        loop {
            let mut connection = self.connection(&slot, lane).await?;
            match connection.wire.send(command).await {
                Ok(value) => return Ok((value, connection)),
                Err(error) if is_broken(&error) => {
                    slot.give_up(&connection);
                    if left == 0 {
                        return Err(error.into());
                    }
                    left -= 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn connection(&self, slot: &Slot, lane: Lane) -> Result<Connection, Failure> {
        if let Some(connection) = slot.live() {
            return Ok(connection);
        }
        let mut opening = slot.opening.lock().await;
        // While this call waited for the lock, another may have made a connection, or failed to.
        if let Some(connection) = slot.live() {
            return Ok(connection);
        }
        if let Some((until, last)) = &opening.failed
            && Instant::now() < *until
        {
            return Err(Failure::Pausing(Box::new(last.clone())));
        }
        match self.open(lane).await {
            Ok(wire) => {
                *opening = Opening { made: opening.made + 1, ..Opening::default() };
                let connection = Connection { wire, number: opening.made };
                *slot.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
                Ok(connection)
            }
            Err(failure) => {
                opening.pause = (opening.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                // Between half of it and all of it, so that the workers of a server do not knock together.
                let pause = opening.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                opening.failed = Some((Instant::now() + pause, failure.clone()));
                Err(failure)
            }
        }
    }

    async fn open(&self, lane: Lane) -> Result<Wire, Failure> {
        let Times { responding, replicating } = self.times;
        let responding = if matches!(lane, Lane::Waiting(_)) { responding + replicating } else { responding };
        let checked = async {
            let mut wire = self.address.open(OPENING, responding).await?;
            for info in wire.info().await? {
                server::check(&info, wire.is_cluster()).map_err(Failure::Refused)?;
                if !server::keeps_a_log(&info) {
                    let warn = "the Redis server has `appendonly no`: when it restarts, it forgets claims and answers";
                    self.warned.call_once(|| tracing::warn!("{warn}"));
                }
            }
            Ok(wire)
        };
        timeout(OPENING, checked).await.unwrap_or(Err(Failure::Slow))
    }

    fn slot(&self, lane: Lane) -> Result<Arc<Slot>, Failure> {
        let runtime = Handle::try_current().map_err(|_| Failure::NoRuntime)?;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = false;
        let lanes = slots.entry(runtime.id()).or_insert_with(|| {
            new = true;
            HashMap::new()
        });
        let slot = lanes.entry(lane).or_default().clone();
        // A runtime that is shutting down drops the task at once, which then takes the lock.
        drop(slots);
        if new {
            let forget = Forget { slots: Arc::downgrade(&self.slots), runtime: runtime.id() };
            let mut open = self.open.subscribe();
            runtime.spawn(async move {
                let _forget = forget;
                // It ends with an error when the store is dropped, and with its task when the runtime is.
                let _ = open.changed().await;
            });
        }
        Ok(slot)
    }
}

impl Slot {
    fn live(&self) -> Option<Connection> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets a connection go, unless it has been replaced already.
    fn give_up(&self, connection: &Connection) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.number == connection.number) {
            *live = None;
        }
    }
}

/// Drops the connections of a runtime that is gone.
struct Forget {
    slots: Weak<Slots>,
    runtime: Id,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let Some(slots) = self.slots.upgrade() else { return };
        let gone = slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.runtime);
        drop(gone);
    }
}
