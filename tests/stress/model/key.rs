//! The model of one key, for the model checker.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use stateright::{Model, Property};

use super::{
    observer::{Invariant, Step},
    rules::Rules,
    world::{Action, Config, LEASE, Message, Phase, Stored, TICK, TTL, World, owner},
};
use idempotent_core::{
    Abandoned, OwnerToken, Record, RecordState,
    clock::Timestamp,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::{Event, EventOutcome, OPERATOR},
};

/// The property that no dead attempt blocks its key.
pub(super) const RECOVERY: &str = "a claim is answered one lease after a crash";

/// What must happen in some state, so that the properties are not vacuous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Takeover,
    GrantedAgain,
    FirstAfterTtl,
    Replay,
    Mismatch,
    HeldByClaim,
    HeldByAbandonment,
    Fenced,
    LateCompletion,
    CompletionOfHeld,
    CompletionAfterTtl,
    RenewalOfExpired,
    Released,
    ResolvedByRecording,
    ResolvedByRelease,
    LateOwnerAfterOperator,
    Purged,
    Shortened,
}

impl Seen {
    pub(super) const ALL: [Self; 18] = [
        Self::Takeover,
        Self::GrantedAgain,
        Self::FirstAfterTtl,
        Self::Replay,
        Self::Mismatch,
        Self::HeldByClaim,
        Self::HeldByAbandonment,
        Self::Fenced,
        Self::LateCompletion,
        Self::CompletionOfHeld,
        Self::CompletionAfterTtl,
        Self::RenewalOfExpired,
        Self::Released,
        Self::ResolvedByRecording,
        Self::ResolvedByRelease,
        Self::LateOwnerAfterOperator,
        Self::Purged,
        Self::Shortened,
    ];
}

/// The model of one key.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) config: Config,
    pub(super) rules: Rules,
    seen: Arc<[AtomicU64; Seen::ALL.len()]>,
}

impl Key {
    pub(super) fn new(config: Config, rules: Rules) -> Self {
        Self { config, rules, seen: Arc::default() }
    }

    pub(super) fn count(&self, seen: Seen) -> u64 {
        self.seen[seen as usize].load(Ordering::Relaxed)
    }

    fn saw(&self, kind: Seen, seen: bool) {
        if seen {
            self.seen[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the store execute a message that it read at `at`; returns the outcome.
    fn execute(
        &self,
        world: &mut World,
        of: (usize, Message),
        read: (Stored, Timestamp),
    ) -> EventOutcome {
        let (record, at) = (read.0.0, read.1);
        let (change, outcome) = world.outcome(&self.rules, &self.config, of, (record.as_ref(), at));
        let before = world.record.clone();
        world.apply(change);
        let after = world.record.clone();
        let step = Step {
            who: of.0,
            message: of.1,
            before: before.0.as_ref(),
            after: after.0.as_ref(),
            outcome: &outcome,
            now: world.now,
        };
        self.note(&step);
        world.observer.observe(&step, &self.config);
        if let EventOutcome::Claim(ClaimOutcome::Granted { attempt }) = outcome {
            if self.rules.numbered {
                world.observer.remember_number(of.0, attempt);
            }
            if world.phases[of.0] == Phase::Claiming {
                world.phases[of.0] = Phase::Running;
            }
        }
        outcome
    }

    fn deliver(&self, world: &mut World, who: usize, message: Message) -> EventOutcome {
        let read = (world.record.clone(), world.now);
        self.execute(world, (who, message), read)
    }

    /// Counts what happened.
    fn note(&self, step: &Step<'_>) {
        let Step { who, message, before, after, now, outcome } = *step;
        let own = |record: &&Record| owner(record) == Some(who);
        let lease_over = before.is_some_and(|record| record.lease_expired(now));
        let ttl_over = before.is_some_and(|record| record.expires_at <= now);
        let changed = before != after;
        match outcome {
            EventOutcome::Claim(ClaimOutcome::Granted { attempt }) => {
                self.saw(Seen::Takeover, *attempt > 1 && before.filter(own).is_none());
                self.saw(Seen::GrantedAgain, before.filter(own).is_some() && !ttl_over);
                self.saw(Seen::FirstAfterTtl, *attempt == 1 && ttl_over);
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(_))) => {
                self.saw(Seen::Replay, true)
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { newly, .. })) => {
                self.saw(Seen::HeldByClaim, *newly)
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Mismatch { .. })) => {
                self.saw(Seen::Mismatch, true)
            }
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. })) => {
                self.saw(Seen::Shortened, changed)
            }
            EventOutcome::Fence(Fence::Fenced) => {
                self.saw(Seen::Fenced, before.is_some());
                let operator = before.is_some_and(|record| record.owner == OPERATOR);
                self.saw(Seen::LateOwnerAfterOperator, operator && message == Message::Complete);
            }
            EventOutcome::Fence(Fence::Passed) => match message {
                Message::Complete if changed => {
                    let held = before.is_some_and(|record| record.state == RecordState::Held);
                    self.saw(Seen::LateCompletion, lease_over);
                    self.saw(Seen::CompletionOfHeld, held);
                    self.saw(Seen::CompletionAfterTtl, ttl_over);
                }
                Message::Renew => self.saw(Seen::RenewalOfExpired, lease_over),
                Message::Release => self.saw(Seen::Released, true),
                Message::Abandon => {
                    let held = after.is_some_and(|record| record.state == RecordState::Held);
                    self.saw(Seen::HeldByAbandonment, held);
                }
                _ => {}
            },
            EventOutcome::Resolve(ResolveOutcome::Resolved) => {
                self.saw(Seen::ResolvedByRecording, after.is_some());
                self.saw(Seen::ResolvedByRelease, after.is_none());
            }
            EventOutcome::Resolve(ResolveOutcome::Conflict)
            | EventOutcome::Changed(_)
            | EventOutcome::Appended => {}
            EventOutcome::Purge(removed) => self.saw(Seen::Purged, *removed),
        }
    }

    /// Whether a claim is answered, or finds the key held, one lease after all attempts have died.
    fn recovers(&self, world: &World) -> bool {
        let Some(record) = &world.record.0 else { return true };
        let claim = |byte| {
            Claim::new(record.fingerprint, OwnerToken::from_bytes([byte; 16]))
                .with_lease(LEASE)
                .with_ttl(TTL)
                .with_abandoned(Abandoned::Retry)
        };
        let (mut world, now) = (world.clone(), world.now);
        let mut is_in_flight = |byte, now| {
            let claim = claim(byte);
            let (change, outcome) =
                (self.rules.step)(world.record.0.as_ref(), &Event::Claim(&claim), now, 0);
            world.apply(change);
            matches!(
                outcome,
                EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. }))
            )
        };
        !(is_in_flight(0xfe, now) && is_in_flight(0xff, now.after(LEASE)))
    }
}

impl Model for Key {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        (0..self.config.attempts.len()).for_each(|who| {
            world.actions_of(who, &self.config, actions);
        });
        actions.extend([Action::Deliver(0, Message::Purge), Action::Tick, Action::SetBack]);
        if self.config.operator {
            actions.push(Action::Look);
        }
        if self.rules.check_then_act {
            let checks: Vec<_> = actions
                .iter()
                .filter_map(|action| match action {
                    Action::Deliver(who, message) => Some(Action::Check(*who, *message)),
                    _ => None,
                })
                .collect();
            actions.extend(checks);
            actions.push(Action::Act);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Deliver(who, message) => drop(self.deliver(&mut next, who, message)),
            Action::Commit(who) => {
                next.phases[who] = Phase::Completed;
                self.deliver(&mut next, who, Message::Complete);
            }
            Action::ClaimAndCommit(who) => {
                let claimed = self.deliver(&mut next, who, Message::Claim);
                if matches!(claimed, EventOutcome::Claim(ClaimOutcome::Granted { .. })) {
                    next.phases[who] = Phase::Completed;
                    self.deliver(&mut next, who, Message::Complete);
                }
            }
            Action::Enter(who, phase) => next.phases[who] = phase,
            Action::Look => {
                let held = world.record.0.as_ref().filter(|record| record.is_held(world.now));
                next.looked |= 1 << held.and_then(owner)?;
            }
            Action::Tick => {
                next.now = world.now.after(TICK);
                next.observer.tick();
            }
            Action::SetBack => {
                next.now = Timestamp::from_millis(world.now.as_millis() - 1);
            }
            Action::Check(who, message) if world.checked.is_none() => {
                next.checked = Some((who, message, world.record.clone(), world.now));
            }
            Action::Act => {
                let (who, message, record, now) = next.checked.take()?;
                self.execute(&mut next, (who, message), (record, now));
            }
            Action::Check(..) => return None,
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(Invariant::I1.name(), |_, world: &World| world.keeps(Invariant::I1)),
            Property::always(Invariant::I2.name(), |_, world: &World| world.keeps(Invariant::I2)),
            Property::always(Invariant::I3.name(), |_, world: &World| world.keeps(Invariant::I3)),
            Property::always(Invariant::I4.name(), |_, world: &World| world.keeps(Invariant::I4)),
            Property::always(Invariant::I5.name(), |_, world: &World| world.keeps(Invariant::I5)),
            Property::always(Invariant::I6.name(), |_, world: &World| world.keeps(Invariant::I6)),
            Property::always(RECOVERY, Self::recovers),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        (1..=u64::from(self.config.last_time)).contains(&world.now.as_millis())
    }
}
