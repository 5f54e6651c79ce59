//! The store as a process sees it: each call travels to the database over a network that fails.

use std::{
    any::TypeId,
    fmt,
    num::NonZeroU16,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Store, Transaction, TransactionClaim, Transactions},
    transition::EventOutcome,
};
use idempotent_sql::group_commit::{GroupCommit, GroupCommitLimits};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use self::{connection::SimulatedTransaction, first_claims::FirstClaims, group_commit::Group};
use crate::{
    database::{Database, Reply, Statement},
    release::Release,
    world::{World, chance, millis},
};

mod connection;
mod first_claims;
mod group_commit;

pub(crate) use connection::SimulatedConnection;

/// The most steps in a batch: few, so that several batches follow each other.
const BATCH: NonZeroU16 = NonZeroU16::MIN.saturating_add(2);
/// The most batches at the same time: two of them pass late ones.
const BATCHES: usize = 3;

/// The connection of one process to the database.
#[derive(Clone)]
pub(crate) struct SimulatedStore {
    world: Arc<World>,
    database: Arc<Database>,
    /// Cleared when the process has crashed: nothing that it sends arrives.
    alive: Arc<AtomicBool>,
    /// Set while the network drops everything that the process sends.
    cut_off: Arc<AtomicBool>,
    /// How many of 100 calls fail in a history with faults.
    faults: u32,
    process: usize,
    /// Where claims and completions queue for a batch, if the release uses batches.
    group: Option<Group>,
    first_claims: FirstClaims,
}

/// What the network does to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Delivered,
    /// It fails before it takes effect.
    Lost,
    /// It takes effect, but its acknowledgment is lost.
    Unacknowledged,
    /// It takes effect a second time later.
    Duplicated,
    /// It takes effect after its caller has given up.
    Late,
    /// It never takes effect, and its caller gets no response for a long time.
    Hangs,
}

impl SimulatedStore {
    pub(crate) fn new(
        world: Arc<World>,
        database: Arc<Database>,
        process: usize,
        release: &Release,
    ) -> Self {
        let (alive, cut_off) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let group = release.side_by_side.map(|steps| {
            let limits = GroupCommitLimits::new(steps);
            GroupCommit::new(GroupCommitLimits { batches: BATCHES, steps: BATCH, ..limits })
        });
        let compares = release.compares_claims && database.has_transactions();
        let (faults, first_claims) = (release.faults, FirstClaims::new(compares));
        Self { world, database, alive, cut_off, faults, process, group, first_claims }
    }

    /// Nothing that the process sends from now on arrives.
    pub(crate) fn crash(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.world.oracle(|oracle| oracle.health.died(self.process));
    }

    pub(crate) fn cut_off(&self, cut_off: bool) {
        if self.cut_off.swap(cut_off, Ordering::Relaxed) != cut_off {
            self.world.oracle(|oracle| oracle.health.set_disturbed(self.process, cut_off));
        }
    }

    fn fate(&self, repeatable: bool) -> Fate {
        if !self.alive.load(Ordering::Relaxed) {
            return Fate::Hangs;
        }
        if self.cut_off.load(Ordering::Relaxed) {
            return if chance(50) { Fate::Hangs } else { Fate::Lost };
        }
        if !self.world.is_chaotic() || !chance(self.faults) {
            return Fate::Delivered;
        }
        match fastrand::u32(0..10) {
            0..3 => Fate::Lost,
            3..6 => Fate::Unacknowledged,
            6 if repeatable => Fate::Duplicated,
            7 => Fate::Late,
            8 => Fate::Hangs,
            _ => Fate::Delivered,
        }
    }

    /// Sends a statement that may arrive twice.
    async fn call(&self, statement: Statement) -> Result<Reply, StoreError> {
        let fate = self.fate(true);
        if fate == Fate::Duplicated {
            let (database, again) = (self.database.clone(), statement.clone());
            self.world.spawn_outside(async move {
                sleep(millis(1, 8_000)).await;
                database.execute(again).await;
            });
        }
        let delay = if fate == Fate::Late { millis(1_000, 15_000) } else { millis(0, 20) };
        self.send(statement, fate, delay).await
    }

    /// Sends a statement, which arrives after `delay`.
    async fn send(
        &self,
        statement: Statement,
        fate: Fate,
        delay: Duration,
    ) -> Result<Reply, StoreError> {
        self.announce(&statement);
        if fate != Fate::Delivered {
            self.world.oracle(|oracle| oracle.health.harmed(self.process));
            self.world
                .trace(|| format!("network: process {} {fate:?}: {statement:?}", self.process));
        }
        match fate {
            Fate::Hangs => {
                // Until the operating system gives the connection up.
                sleep(millis(20_000, 60_000)).await;
                return Err(lost());
            }
            Fate::Lost => {
                sleep(delay).await;
                return Err(lost());
            }
            _ => {}
        }
        let sent = statement.clone();
        let (sender, receiver) = oneshot::channel();
        let (database, alive) = (self.database.clone(), self.alive.clone());
        self.world.spawn_outside(async move {
            sleep(delay).await;
            let reply = database.execute(statement).await;
            if fate == Fate::Unacknowledged || !alive.load(Ordering::Relaxed) {
                return;
            }
            sleep(millis(0, 20)).await;
            let _ = sender.send(reply);
        });
        let reply = receiver.await.map_err(|_| lost())?;
        if let Reply::Failed(why) = reply {
            return Err(StoreError::transient("simulated", "execute a statement", why));
        }
        self.acknowledge(&sent);
        Ok(reply)
    }

    /// Tells the oracle of a statement before it is sent.
    fn announce(&self, statement: &Statement) {
        if let Statement::Batch(steps) = statement {
            steps.iter().for_each(|step| self.announce(step));
        }
        if let Some(recording) = completion(statement) {
            self.world.oracle(|oracle| oracle.completion_sent(&recording));
        }
        if let Statement::Claim(_, claim) | Statement::ClaimIn(_, _, claim, _) = statement {
            self.world.oracle(|oracle| oracle.health.owned_by(&claim.owner, self.process));
        }
    }

    /// Tells the oracle of a statement that has succeeded.
    fn acknowledge(&self, statement: &Statement) {
        if let Some(recording) = completion(statement) {
            self.world.oracle(|oracle| oracle.completion_acknowledged(&recording));
        }
    }
}

/// The recording that a statement completes an operation with.
fn completion(statement: &Statement) -> Option<Bytes> {
    match statement {
        Statement::Complete(_, recording)
        | Statement::CompleteFirst(_, recording, ..)
        | Statement::CompleteIn(_, _, recording)
        | Statement::CompleteAndCommit(_, _, recording) => Some(recording.clone()),
        _ => None,
    }
}

fn lost() -> StoreError {
    StoreError::transient("simulated", "execute a statement", "the connection was lost")
}

fn unexpected(reply: &Reply) -> StoreError {
    StoreError::permanent("simulated", "read a reply", format!("{reply:?}"))
}

impl Reply {
    fn claim(self) -> Result<ClaimOutcome, StoreError> {
        match self {
            Self::Step(EventOutcome::Claim(outcome)) => Ok(outcome),
            reply => Err(unexpected(&reply)),
        }
    }

    fn fence(self) -> Result<Fence, StoreError> {
        match self {
            Self::Step(EventOutcome::Fence(fence)) => Ok(fence),
            reply => Err(unexpected(&reply)),
        }
    }

    fn done(self) -> Result<(), StoreError> {
        match self {
            Self::Done => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }
}

#[async_trait]
impl Store for SimulatedStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.call(Statement::Purge(0)).await.map(drop)
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        let sent = Instant::now();
        let outcome = self.call_in_turn(Statement::Claim(*id, claim.clone())).await?.claim()?;
        self.first_claims.claimed(id, claim, &outcome, sent);
        Ok(outcome)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        match self.call(Statement::Renew(leases.to_vec())).await? {
            Reply::Renewed(outcomes) => Ok(outcomes),
            reply => Err(unexpected(&reply)),
        }
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.call(Statement::Note(*lease, note.clone())).await?.fence()
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        if let Some(fence) = self.complete_first(lease, recording).await? {
            return Ok(fence);
        }
        self.call_in_turn(Statement::Complete(*lease, recording.clone())).await?.fence()
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.call(Statement::Release(*lease)).await?.fence()
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.call(Statement::Abandon(*lease, policy)).await?.fence()
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        match self.call(Statement::LookUp(*id)).await? {
            Reply::Found(found) => Ok(found.map(|found| *found)),
            reply => Err(unexpected(&reply)),
        }
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        _audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        match self.call(Statement::Resolve(*id, *seen, resolution.clone())).await? {
            Reply::Step(EventOutcome::Resolve(outcome)) => Ok(outcome),
            reply => Err(unexpected(&reply)),
        }
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        match self.call(Statement::Purge(limit)).await? {
            Reply::Purged(removed) => Ok(removed),
            reply => Err(unexpected(&reply)),
        }
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let statement = Statement::Resumable(operation.clone(), after.copied(), limit);
        match self.call(statement).await? {
            Reply::Resumable(page) => Ok(page),
            reply => Err(unexpected(&reply)),
        }
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.database.has_transactions().then_some(self as &dyn Transactions)
    }
}

#[async_trait]
impl Transactions for SimulatedStore {
    /// Handlers take a `Tx<Sqlite>`, but reach the simulated connection.
    fn database(&self) -> TypeId {
        TypeId::of::<sqlx::Sqlite>()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let transaction = SimulatedTransaction::new(self);
        transaction.send(Statement::Begin).await?.done()?;
        Ok(Box::new(transaction))
    }

    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        let transaction = SimulatedTransaction::new(self);
        let claim_in = |tx| Statement::ClaimIn(tx, *id, claim.clone(), wait);
        Ok(match transaction.send(claim_in).await?.claim()? {
            ClaimOutcome::Granted { attempt } => {
                TransactionClaim::Granted { attempt, transaction: Box::new(transaction) }
            }
            ClaimOutcome::Rejected(rejection) => TransactionClaim::Rejected(rejection),
        })
    }
}

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedStore of process {}", self.process)
    }
}
