//! One server, its connections and its health.
//!
//! A connection is driven by a task of the runtime that it was opened on, so each runtime has its
//! own, one for each [`Lane`]. The health of a server is shared: what one runtime finds out, no
//! other has to wait for.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, ConnectionInfo, Value, aio::MultiplexedConnection};
use tokio::{
    runtime::Id,
    sync::watch,
    time::{Instant, timeout},
};

use super::{address::connect, error::Failure, server::Requirements};

/// How long a connection may take to open, with the checks of the server.
pub(super) const OPENING: Duration = Duration::from_secs(2);
/// How long a call waits for a connection to a server that did not respond before.
const PROBING: Duration = Duration::from_millis(500);
/// The first pause after a connection could not be opened; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a call waits for a response that came in time, but was not read while a handler blocked
/// the runtime, or the process was stopped. That says nothing about the server.
const UNREAD: Duration = Duration::from_millis(100);
/// The epoch of a server that is not used any more.
const RETIRED: u64 = u64::MAX;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// The steps of requests.
    Work,
    /// Renewals, which do not queue behind recordings.
    Renewal,
    /// A step that waits for replicas and blocks its connection meanwhile.
    Waiting(usize),
}

/// A server, shared by all runtimes.
pub(super) struct Node {
    info: ConnectionInfo,
    requirements: Arc<Requirements>,
    /// Connections of an earlier epoch are not used any more, and calls on them end. A new epoch
    /// begins when the server does not respond.
    epoch: watch::Sender<u64>,
    down: Mutex<Option<Down>>,
    slots: Mutex<HashMap<(Id, Lane), Arc<Slot>>>,
}

/// A server that could not be reached, or did not respond.
struct Down {
    last: Failure,
    pause: Duration,
    /// When the next call tries it again.
    due: Instant,
    /// Until then calls wait for a connection: the server may have been slow only.
    patient: Instant,
}

/// The place of one runtime's connection for one lane.
#[derive(Default)]
struct Slot(Mutex<Slotted>);

#[derive(Default)]
struct Slotted {
    live: Option<Connection>,
    /// How many connections there have been.
    opened: u64,
    opening: Option<Opening>,
}

type Opening = watch::Receiver<Option<Result<Connection, Failure>>>;

/// A connection that any number of calls share.
#[derive(Clone)]
pub(super) struct Connection {
    wire: MultiplexedConnection,
    epoch: u64,
    number: u64,
}

/// Where a command was sent.
pub(super) struct Sent {
    pub(super) node: Arc<Node>,
    connection: Connection,
    lane: Lane,
}

impl Node {
    pub(super) fn new(info: ConnectionInfo, requirements: Arc<Requirements>) -> Self {
        Self { info, requirements, epoch: watch::Sender::new(0), down: Mutex::default(), slots: Mutex::default() }
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Ends the calls on this server and closes its connections: it is no master any more.
    pub(super) fn retire(&self) {
        self.epoch.send_replace(RETIRED);
        let slots = std::mem::take(&mut *lock(&self.slots));
        drop(slots);
    }

    pub(super) fn is_retired(&self) -> bool {
        *self.epoch.borrow() == RETIRED
    }

    /// Closes the connections that a runtime drove.
    pub(super) fn forget(&self, runtime: Id) {
        let mut slots = lock(&self.slots);
        let gone: Vec<_> = slots.extract_if(|(of, _), _| *of == runtime).collect();
        drop(slots);
        drop(gone);
    }

    /// Sends a command and waits up to `within` for its response.
    async fn exchange(
        &self,
        connection: &Connection,
        message: Message<'_>,
        within: Duration,
    ) -> Result<Value, Failure> {
        let mut wire = connection.wire.clone();
        let mut epochs = self.epoch.subscribe();
        let ended = epochs.wait_for(|epoch| *epoch != connection.epoch);
        let sent = async {
            let mut sent = pin!(message.send(&mut wire));
            match timeout(within, &mut sent).await {
                Ok(value) => value,
                Err(_) => timeout(UNREAD, sent).await.unwrap_or(Err(Failure::Late)),
            }
        };
        let value = tokio::select! {
            biased;
            value = sent => value,
            _ = ended => Err(Failure::Left),
        };
        match value {
            // What a server acknowledges after another has taken its place may be forgotten.
            Ok(_) if self.is_retired() => Err(Failure::Left),
            value => value,
        }
    }

    /// Draws the conclusions from a call that failed.
    fn note(&self, lane: Lane, connection: &Connection, failure: &Failure) {
        if matches!(failure, Failure::Late) {
            self.suspect(connection.epoch);
        } else if failure.breaks_connection()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(slot) = lock(&self.slots).get(&(runtime.id(), lane)).cloned()
        {
            // Another call may have replaced it already.
            let gone = lock(&slot.0).live.take_if(|live| live.number == connection.number);
            drop(gone);
        }
    }

    /// Closes all connections and ends the calls on them, unless that was done since.
    fn suspect(&self, epoch: u64) {
        // Calls that end look for another connection at once: they wait for this lock, and then
        // know that the server is down.
        let mut down = lock(&self.down);
        let suspect = self.epoch.send_if_modified(|current| {
            let suspect = *current == epoch;
            *current += u64::from(suspect);
            suspect
        });
        if suspect {
            let (due, patient) = (Instant::now(), Instant::now() + PROBING);
            *down = Some(Down { last: Failure::Late, pause: Duration::ZERO, due, patient });
            drop(down);
            let slots: Vec<_> = lock(&self.slots).values().cloned().collect();
            for slot in slots {
                let gone = lock(&slot.0).live.take_if(|live| live.epoch <= epoch);
                drop(gone);
            }
        }
    }

    /// The connection of this runtime for a lane. It is opened if there is none.
    ///
    /// While the server is known not to respond, calls fail at once, but for one about each half
    /// second that tries again.
    pub(super) async fn connection(self: &Arc<Self>, runtime: Id, lane: Lane) -> Result<Connection, Failure> {
        let epoch = *self.epoch.borrow();
        if epoch == RETIRED {
            return Err(Failure::Left);
        }
        let slot = lock(&self.slots).entry((runtime, lane)).or_default().clone();
        let (mut opening, limit) = {
            let mut slotted = lock(&slot.0);
            if let Some(live) = slotted.live.as_ref().filter(|live| live.epoch == epoch) {
                return Ok(live.clone());
            }
            let limit = self.admit(slotted.opening.is_some())?;
            let opening = match &slotted.opening {
                Some(opening) => opening.clone(),
                None => slotted.opening.insert(self.open(slot.clone(), epoch)).clone(),
            };
            (opening, limit)
        };
        match timeout(limit, opening.wait_for(Option::is_some)).await {
            Ok(Ok(opened)) => opened.clone().unwrap_or(Err(Failure::Slow)),
            // The runtime is shutting down, or it takes longer than this call can wait.
            Ok(Err(_)) | Err(_) => Err(Failure::Slow),
        }
    }

    /// How long a call may wait for a connection, if the server may be tried at all.
    fn admit(&self, opening: bool) -> Result<Duration, Failure> {
        let now = Instant::now();
        match &mut *lock(&self.down) {
            None => Ok(OPENING),
            Some(down) if now < down.patient => Ok(down.patient - now),
            Some(down) if !opening && now >= down.due => {
                down.due = now + LONGEST_PAUSE;
                Ok(PROBING)
            }
            Some(down) => Err(Failure::Pausing(Box::new(down.last.clone()))),
        }
    }

    /// Opens a connection in a separate task, which continues when the calls that wait for it end.
    fn open(self: &Arc<Self>, slot: Arc<Slot>, epoch: u64) -> Opening {
        let (done, opening) = watch::channel(None);
        let node = self.clone();
        tokio::spawn(async move {
            let opened = timeout(OPENING, node.checked()).await.unwrap_or(Err(Failure::Slow));
            let opened = node.settle(&slot, epoch, opened);
            done.send_replace(Some(opened));
        });
        opening
    }

    async fn checked(&self) -> Result<MultiplexedConnection, Failure> {
        let mut wire = connect(&self.info, None, OPENING).await?;
        let info =
            Message::Command(&redis::cmd("INFO")).send(&mut wire).await.map_err(|failure| failure.lacking("INFO"))?;
        let info: String = redis::from_redis_value(info).map_err(Failure::reply)?;
        self.requirements.verify(&info).map_err(Failure::Refused)?;
        Ok(wire)
    }

    fn settle(
        &self,
        slot: &Slot,
        epoch: u64,
        opened: Result<MultiplexedConnection, Failure>,
    ) -> Result<Connection, Failure> {
        let mut slotted = lock(&slot.0);
        slotted.opening = None;
        let mut down = lock(&self.down);
        match opened {
            Ok(wire) => {
                *down = None;
                slotted.opened += 1;
                let connection = Connection { wire, epoch, number: slotted.opened };
                // A server that was retired meanwhile keeps no connection.
                if *self.epoch.borrow() == epoch {
                    slotted.live = Some(connection.clone());
                }
                Ok(connection)
            }
            Err(failure) => {
                let pause = down.as_ref().map_or(Duration::ZERO, |down| down.pause);
                let pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                // Between half of it and all of it, so that the workers of a server do not all try
                // at once.
                let due = Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                *down = Some(Down { last: failure.clone(), pause, due, patient: Instant::now() });
                Err(failure)
            }
        }
    }
}

impl Sent {
    pub(super) fn on(node: Arc<Node>, connection: Connection, lane: Lane) -> Self {
        Self { node, connection, lane }
    }

    /// Sends a command on the same connection.
    pub(super) async fn send(&self, message: Message<'_>, within: Duration) -> Result<Value, Failure> {
        let value = self.node.exchange(&self.connection, message, within).await;
        value.inspect_err(|failure| self.node.note(self.lane, &self.connection, failure))
    }
}

/// What is sent to a server.
#[derive(Clone, Copy)]
pub(super) enum Message<'a> {
    Command(&'a Cmd),
    /// A command for a node that is importing the key's slot.
    Asking(&'a Cmd),
}

impl Message<'_> {
    async fn send(self, wire: &mut MultiplexedConnection) -> Result<Value, Failure> {
        let value = match self {
            Self::Command(command) => wire.send_packed_command(command).await?,
            Self::Asking(command) => {
                // In one write, so that no other call's command comes between the two.
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                let [asked, value] = <[Value; 2]>::try_from(wire.send_packed_commands(&both, 0, 2).await?)
                    .map_err(|_| Failure::Unexpected)?;
                asked.extract_error().map_err(|error| Failure::from(error).lacking("ASKING"))?;
                value
            }
        };
        Ok(value.extract_error()?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
