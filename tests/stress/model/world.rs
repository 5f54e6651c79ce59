//! The states of the model, and its actions.

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

use bytes::Bytes;

use super::{
    observer::{Invariant, Observer},
    rules::Rules,
};
use idempotent_core::{
    Abandoned, Fingerprint, History, OwnerToken, Record, RecordState,
    clock::Timestamp,
    protocol::{Claim, Resolution},
    transition::{Change, Event, EventOutcome, OPERATOR},
};

/// The most attempts of a configuration.
pub(super) const ATTEMPTS: usize = 4;
/// The step of the clock.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// The length of each lease.
pub(super) const LEASE: Duration = TICK;
/// The ttl of each claim.
pub(super) const TTL: Duration = Duration::from_millis(2);
/// The highest attempt number that is distinguished. Nothing depends on the number.
const LAST_NUMBER: u32 = 2;

/// The request of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) fingerprint: u8,
    pub(super) abandoned: Abandoned,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) name: &'static str,
    /// The attempts, each of which has its own token: of different clients, or of one client that
    /// sends its request again.
    pub(super) attempts: &'static [Request],
    /// Whether handlers write in the transaction of the completion.
    pub(super) transactions: bool,
    /// Whether an operator resolves held keys.
    pub(super) operator: bool,
    /// The last time of the clock; the first is 1.
    pub(super) last_time: u8,
    /// How many states there are at least.
    pub(super) states: usize,
}

/// How far an attempt is. It implies which of its messages are in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It has sent its claim.
    #[default]
    Claiming,
    /// It has sent a release, because it waited for the outcome of its claim for too long.
    GaveUp,
    /// It was granted the key. It runs the handler and renews its lease.
    Running,
    /// It has sent its completion, or has committed or lost its transaction.
    Completed,
    /// It has sent a release after it ran.
    Released,
    /// It was abandoned: its handler panicked, or its process lost the store.
    Abandoned,
}

/// A message to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Message {
    Claim,
    Renew,
    Complete,
    Release,
    Abandon,
    /// An operator who has seen the attempt as held completes it, or releases it.
    ResolveComplete,
    ResolveRelease,
    /// Of the store itself.
    Purge,
}

/// One step of the model. Attempts are named by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// The store executes a message. The message stays in the network.
    Deliver(usize, Message),
    /// Completes within a transaction, which is sent once.
    Commit(usize),
    /// Claims, runs and completes in one transaction.
    ClaimAndCommit(usize),
    /// An attempt goes on to this phase.
    Enter(usize, Phase),
    /// An operator looks at the held key.
    Look,
    /// A moment passes, or the clock is set forward.
    Tick,
    /// The clock is set back.
    SetBack,
    /// A store that checks before it acts reads the record for this message.
    Check(usize, Message),
    /// It then writes what it decided.
    Act,
}

/// The record of the only key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored(pub(super) Option<Record>);

impl Hash for Stored {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Some(record) = &self.0 else { return hasher.write_u8(0) };
        let state = match &record.state {
            RecordState::InFlight => 1,
            RecordState::Held => 2,
            RecordState::Completed(recording) => 3 + recording[0],
        };
        hasher.write(&[
            state,
            record.fingerprint.to_bytes()[0],
            record.owner.as_bytes()[0],
            u8::from(record.abandoned == Abandoned::Hold),
        ]);
        let times = [record.lease_until, record.first_seen, record.expires_at];
        times.iter().for_each(|time| hasher.write_u64(time.as_millis()));
        hasher.write_u32(record.attempt);
    }
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) record: Stored,
    pub(super) now: Timestamp,
    pub(super) phases: [Phase; ATTEMPTS],
    /// The attempts that an operator has seen as held; a bit each.
    pub(super) looked: u8,
    pub(super) observer: Observer,
    /// What a store that checks before it acts has read.
    pub(super) checked: Option<(usize, Message, Stored, Timestamp)>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            record: Stored(None),
            now: Timestamp::from_millis(1),
            phases: [Phase::Claiming; ATTEMPTS],
            looked: 0,
            observer: Observer::default(),
            checked: None,
        }
    }

    pub(super) fn keeps(&self, invariant: Invariant) -> bool {
        !self.observer.is_broken(invariant)
    }

    /// The actions of an attempt, and the deliveries of its messages.
    pub(super) fn actions_of(&self, who: usize, config: &Config, actions: &mut Vec<Action>) {
        let deliver = |message| Action::Deliver(who, message);
        let enter = |phase| Action::Enter(who, phase);
        actions.push(deliver(Message::Claim));
        match self.phases[who] {
            Phase::Claiming => {
                actions.push(enter(Phase::GaveUp));
                if config.transactions {
                    actions.push(Action::ClaimAndCommit(who));
                }
            }
            Phase::GaveUp => actions.push(deliver(Message::Release)),
            Phase::Running => {
                actions.push(deliver(Message::Renew));
                actions.extend([Phase::Released, Phase::Abandoned].map(enter));
                actions.push(if config.transactions {
                    Action::Commit(who)
                } else {
                    enter(Phase::Completed)
                });
            }
            Phase::Completed => {
                actions.push(deliver(Message::Renew));
                // If the acknowledgment of a commit is lost, the attempt is abandoned, or it claims
                // the key again and releases it.
                actions.extend(if config.transactions {
                    [Message::Abandon, Message::Release].map(deliver).to_vec()
                } else {
                    vec![deliver(Message::Complete)]
                });
            }
            Phase::Released => actions.extend([Message::Renew, Message::Release].map(deliver)),
            Phase::Abandoned => actions.extend([Message::Renew, Message::Abandon].map(deliver)),
        }
        if self.looked & (1 << who) != 0 {
            actions.extend([Message::ResolveComplete, Message::ResolveRelease].map(deliver));
        }
    }

    /// The outcome of a message, by rules.
    pub(super) fn outcome(
        &self,
        rules: &Rules,
        config: &Config,
        (who, message): (usize, Message),
        (record, now): (Option<&Record>, Timestamp),
    ) -> (Change, EventOutcome) {
        let (owner, recording) = (token(who), recording(who));
        let (claim, resolution) = (claim(config, who), Resolution::Complete(OF_OPERATOR));
        let event = match message {
            Message::Claim => Event::Claim(&claim),
            Message::Renew => Event::Renew(owner, LEASE),
            Message::Complete => Event::Complete(owner, &recording),
            Message::Release => Event::Release(owner),
            Message::Abandon => Event::Abandon(owner, claim.abandoned),
            Message::ResolveComplete => Event::Resolve(owner, &resolution),
            Message::ResolveRelease => Event::Resolve(owner, &Resolution::Release),
            Message::Purge => Event::Purge,
        };
        (rules.step)(record, &event, now, self.observer.number(who))
    }

    /// Applies a change.
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Keep => {}
            Change::Put(record) => {
                let attempt = record.attempt.min(LAST_NUMBER);
                self.record.0 = Some(without_history(with_attempt(record, attempt)));
            }
            Change::Remove => self.record.0 = None,
        }
    }
}

fn with_attempt(mut record: Record, attempt: u32) -> Record {
    record.attempt = attempt;
    record
}

/// No step depends on the history, which would make every state a different one.
fn without_history(mut record: Record) -> Record {
    record.history = History::EMPTY;
    record
}

/// One recording for each attempt, and that of the operator.
static RECORDINGS: [u8; ATTEMPTS + 1] = [1, 2, 3, 4, 0];
/// The recording with which an operator completes the key.
pub(super) const OF_OPERATOR: Bytes = Bytes::from_static(RECORDINGS.split_at(ATTEMPTS).1);

fn recording(who: usize) -> Bytes {
    Bytes::from_static(&RECORDINGS[who..=who])
}

/// The attempt whose recording this is; `None` for the operator.
pub(super) fn author(recording: &Bytes) -> Option<usize> {
    usize::from(recording[0]).checked_sub(1)
}

pub(super) fn token(who: usize) -> OwnerToken {
    OwnerToken::from_bytes([RECORDINGS[who]; 16])
}

/// The attempt that owns a record; `None` for the operator.
pub(super) fn owner(record: &Record) -> Option<usize> {
    (record.owner != OPERATOR).then(|| usize::from(record.owner.as_bytes()[0]) - 1)
}

pub(super) fn claim(config: &Config, who: usize) -> Claim {
    let Request { fingerprint, abandoned } = config.attempts[who];
    let fingerprint = Fingerprint::from_bytes([fingerprint; Fingerprint::BYTES]);
    Claim::new(fingerprint, token(who)).with_lease(LEASE).with_ttl(TTL).with_abandoned(abandoned)
}
