//! One process of the application under test: a store that fails on request, an `Idempotency` on
//! it, and a service.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use idempotent_core::{Lease, RecordId, Store, StoreError};
use tokio::time::sleep;

mod store;
mod transactions;

/// How often a call that hangs looks whether the store works again.
const PAUSE: Duration = Duration::from_millis(5);

/// A call of the guard to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Claim,
    Note,
    Complete,
    Release,
    Abandon,
    LookUp,
    Begin,
    Undo,
    Commit,
}

impl Call {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Note => "note",
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Abandon => "abandon",
            Self::LookUp => "look up",
            Self::Begin => "begin",
            Self::Undo => "undo",
            Self::Commit => "commit",
        }
    }
}

/// When a request waits at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the call takes effect.
    Before,
    /// In the store.
    During,
    /// After the call has taken effect.
    After,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Before it takes effect.
    Fails,
    /// After it has taken effect: its acknowledgment is lost.
    LosesAcknowledgment,
    /// It has no effect, and returns an error when the store works again.
    Hangs,
}

impl Fault {
    pub(crate) const ALL: [Self; 3] = [Self::Fails, Self::LosesAcknowledgment, Self::Hangs];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Fails => "failed",
            Self::LosesAcknowledgment => "lost its acknowledgment",
            Self::Hangs => "hung",
        }
    }
}

/// The store as one process sees it.
#[derive(Clone)]
pub(crate) struct ProcessStore {
    inner: Arc<dyn Store>,
    process: Arc<Process>,
}

#[derive(Debug, Default)]
struct Process {
    is_dead: AtomicBool,
    dies_after_claim: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// The number of the first call that fails, and how. The later ones fail in the same way.
    fault: Option<(usize, Fault)>,
    /// The claims, whether they took effect or not.
    claims: Vec<Lease>,
    /// The call that waits.
    waiting: Option<(Call, Moment)>,
}

impl ProcessStore {
    pub(crate) fn new(inner: Arc<dyn Store>, fault: Option<(usize, Fault)>) -> Self {
        let state = Mutex::new(State { fault, ..State::default() });
        Self { inner, process: Arc::new(Process { state, ..Process::default() }) }
    }

    /// The calls so far, in their order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.process.state().calls.clone()
    }

    /// Lets no further call fail.
    pub(crate) fn heal(&self) {
        self.process.state().fault = None;
    }

    /// Lets no call of this process take effect any more.
    pub(crate) fn die(&self) {
        self.process.is_dead.store(true, Ordering::SeqCst);
    }

    /// Lets no call take effect after the first granted claim.
    pub(crate) fn die_after_claim(&self) {
        self.process.dies_after_claim.store(true, Ordering::SeqCst);
    }

    /// Lets the leases of this process, which has died, expire. A claim may take effect even later:
    /// a database goes on with a statement of a client that is gone.
    pub(crate) async fn expire_leases(&self) -> Result<(), StoreError> {
        let claims = self.process.state().claims.clone();
        for lease in claims {
            let found = self.inner.look_up(&lease.id).await?;
            if let Some(found) = found.filter(|found| found.record.owner == lease.owner) {
                self.inner.abandon(&lease, found.record.abandoned).await?;
            }
        }
        Ok(())
    }

    /// The records that were claimed by this process.
    pub(crate) fn claimed(&self) -> Vec<RecordId> {
        self.process.state().claims.iter().map(|lease| lease.id).collect()
    }

    fn begin_claim(&self, lease: Lease) {
        self.process.state().claims.push(lease);
    }

    fn end_claim(&self) {
        if self.process.dies_after_claim.load(Ordering::SeqCst) {
            self.die();
        }
    }

    fn is_dead(&self) -> bool {
        self.process.is_dead.load(Ordering::SeqCst)
    }

    /// Makes a call, or lets it fail as the test has ordered.
    async fn call<T>(
        &self,
        call: Call,
        made: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let fault = self.process.next(call);
        self.wait(call, Moment::Before).await;
        match fault {
            None => {}
            Some(Fault::Fails) => return Err(failed(call)),
            Some(Fault::LosesAcknowledgment) => return made.await.and_then(|_| Err(failed(call))),
            Some(Fault::Hangs) => {
                while self.process.state().fault.is_some() {
                    sleep(PAUSE).await;
                }
                return Err(failed(call));
            }
        }
        self.process.state().waiting = Some((call, Moment::During));
        let outcome = made.await;
        self.wait(call, Moment::After).await;
        outcome
    }

    /// Waits once, as a store that is not in memory does before and after a call takes effect.
    async fn wait(&self, call: Call, moment: Moment) {
        self.process.state().waiting = Some((call, moment));
        tokio::task::yield_now().await;
        self.process.state().waiting = None;
    }

    /// The call that waits, if one does.
    pub(crate) fn waiting(&self) -> Option<(Call, Moment)> {
        self.process.state().waiting
    }
}

impl Process {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. Returns how it is to fail.
    fn next(&self, call: Call) -> Option<Fault> {
        let mut state = self.state();
        let number = state.calls.len();
        state.calls.push(call);
        state.fault.filter(|(failing, _)| *failing <= number).map(|(_, fault)| fault)
    }
}

fn failed(call: Call) -> StoreError {
    StoreError::transient("test", call.as_str(), "the test kit has made this call fail")
}
