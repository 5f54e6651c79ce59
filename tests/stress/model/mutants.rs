//! Rules without a guard.

use super::{
    HOLD, RETRY, THREE, TRANSACTIONS,
    key::{RECOVERY, Seen},
    observer::Invariant,
    rules::{
        Rules, SHIPPED, altered, fenced, is_abandon, is_complete, is_release, is_renew, is_resolve,
        numbered, remove, rules, unfenced, upserting_renewal, with,
    },
    world::Config,
};
use idempotent_core::{
    Abandoned, Record, RecordState,
    clock::Timestamp,
    protocol::{ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::{Change, Event, EventOutcome, OPERATOR, transition},
};

/// How the model checker notices rules without a guard.
#[derive(Clone, Copy, Debug)]
pub(super) enum CaughtBy {
    /// A state breaks this property.
    Property(&'static str),
    /// This never happens.
    Missing(Seen),
}

const I1: CaughtBy = CaughtBy::Property(Invariant::I1.name());
const I2: CaughtBy = CaughtBy::Property(Invariant::I2.name());
const I3: CaughtBy = CaughtBy::Property(Invariant::I3.name());
const I4: CaughtBy = CaughtBy::Property(Invariant::I4.name());
const I5: CaughtBy = CaughtBy::Property(Invariant::I5.name());
const I6: CaughtBy = CaughtBy::Property(Invariant::I6.name());

/// Rules without a guard, and the configuration in which that is noticed.
pub(super) struct Mutant {
    pub(super) rules: Rules,
    pub(super) config: Config,
    pub(super) caught_by: CaughtBy,
}

const fn mutant(rules: Rules, config: Config, caught_by: CaughtBy) -> Mutant {
    Mutant { rules, config, caught_by }
}

pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        rules("no fence on complete", |r, e, now, _| unfenced(r, e, now, is_complete)),
        RETRY,
        I3,
    ),
    mutant(rules("no fence on release", |r, e, now, _| unfenced(r, e, now, is_release)), RETRY, I3),
    mutant(rules("no fence on renew", |r, e, now, _| unfenced(r, e, now, is_renew)), RETRY, I3),
    mutant(rules("no fence on abandon", |r, e, now, _| unfenced(r, e, now, is_abandon)), RETRY, I3),
    mutant(Rules { check_then_act: true, ..rules("check, then act", SHIPPED.step) }, RETRY, I1),
    mutant(
        Rules { numbered: true, ..rules("the attempt's number is the fence", numbered) },
        RETRY,
        I3,
    ),
    mutant(
        rules("a takeover ignores the fingerprint", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Claim(claim) if record.lease_expired(now) => {
                    record.fingerprint = claim.fingerprint;
                }
                _ => {}
            })
        }),
        RETRY,
        I5,
    ),
    mutant(
        rules("a replay ignores the fingerprint", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Claim(claim) if record.state != RecordState::InFlight => {
                    record.fingerprint = claim.fingerprint;
                }
                _ => {}
            })
        }),
        RETRY,
        I5,
    ),
    mutant(
        rules("a purge ignores the lease", |record, event, now, _| match (record, event) {
            (Some(record), Event::Purge) if record.expires_at <= now => remove(record),
            _ => transition(record, event, now),
        }),
        RETRY,
        I1,
    ),
    mutant(
        rules("a purge removes held keys", |record, event, now, _| match (record, event) {
            (Some(record), Event::Purge) if record.expires_at <= now && record.is_held(now) => {
                remove(record)
            }
            _ => transition(record, event, now),
        }),
        HOLD,
        I6,
    ),
    mutant(
        rules("a purge ignores the ttl", |record, event, now, _| match (record, event) {
            (Some(record), Event::Purge) if matches!(record.state, RecordState::Completed(_)) => {
                remove(record)
            }
            _ => transition(record, event, now),
        }),
        RETRY,
        I2,
    ),
    mutant(rules("a renewal is an upsert", upserting_renewal), RETRY, I3),
    mutant(
        rules("a release after the effect", |record, event, now, _| match (record, event) {
            (Some(record), Event::Release(owner))
                if record.owner == *owner && matches!(record.state, RecordState::Completed(_)) =>
            {
                (Change::Remove, EventOutcome::Fence(Fence::Passed))
            }
            _ => transition(record, event, now),
        }),
        TRANSACTIONS,
        I4,
    ),
    mutant(
        rules("a takeover ignores the record's `hold`", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Claim(_) if record.state == RecordState::InFlight => {
                    record.abandoned = Abandoned::Retry;
                }
                _ => {}
            })
        }),
        HOLD,
        I6,
    ),
    mutant(
        rules("a takeover ignores the claim's `hold`", |record, event, now, _| match event {
            Event::Claim(claim) if record.is_some() => {
                let claim = claim.with_abandoned(Abandoned::Retry);
                transition(record, &Event::Claim(&claim), now)
            }
            _ => transition(record, event, now),
        }),
        THREE,
        I6,
    ),
    mutant(
        rules("a held key is granted", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Claim(_) if record.state == RecordState::Held => {
                    record.state = RecordState::InFlight;
                    record.abandoned = Abandoned::Retry;
                }
                _ => {}
            })
        }),
        HOLD,
        I6,
    ),
    mutant(
        rules("an abandonment ignores `hold`", |record, event, now, _| match event {
            Event::Abandon(owner, _) => {
                altered(record, &Event::Abandon(*owner, Abandoned::Retry), now, |record, _| {
                    record.abandoned = Abandoned::Retry
                })
            }
            _ => transition(record, event, now),
        }),
        HOLD,
        I6,
    ),
    mutant(
        rules("a takeover ignores the lease", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Claim(claim) if record.owner != claim.owner => {
                    record.lease_until = Timestamp::EPOCH;
                }
                _ => {}
            })
        }),
        RETRY,
        I1,
    ),
    mutant(
        rules("a resolution ignores the owner that was seen", |r, e, now, _| {
            unfenced(r, e, now, is_resolve)
        }),
        HOLD,
        I3,
    ),
    mutant(
        rules("a resolution ignores the lease", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Resolve(..) if record.state == RecordState::InFlight => {
                    record.state = RecordState::Held;
                }
                _ => {}
            })
        }),
        HOLD,
        I1,
    ),
    mutant(
        rules("a resolution keeps the owner", |record, event, now, _| {
            let (change, outcome) = transition(record, event, now);
            let resolved = outcome == EventOutcome::Resolve(ResolveOutcome::Resolved);
            let owner = record.filter(|_| resolved).map(|record| record.owner);
            (with(change, |new| new.owner = owner.unwrap_or(new.owner)), outcome)
        }),
        HOLD,
        I3,
    ),
    mutant(
        rules("a completion overwrites the operator's", |record, event, now, _| {
            altered(record, event, now, |record, event| match event {
                Event::Complete(owner, _) if record.owner == OPERATOR => {
                    (record.owner, record.state) = (*owner, RecordState::Held);
                }
                _ => {}
            })
        }),
        HOLD,
        I2,
    ),
    mutant(
        rules("a late completion expires at once", |record, event, now, _| {
            let (change, outcome) = transition(record, event, now);
            let expires_at = record.map(|record| record.expires_at);
            let restore = |new: &mut Record| new.expires_at = expires_at.unwrap_or(new.expires_at);
            (if is_complete(event) { with(change, restore) } else { change }, outcome)
        }),
        RETRY,
        I2,
    ),
    mutant(
        rules("a granted claim is refused when it is sent again", |record, event, now, _| {
            match (record, event) {
                (Some(record), Event::Claim(claim))
                    if record.owner == claim.owner && record.state == RecordState::InFlight =>
                {
                    let lease_left = record.lease_left(now);
                    (
                        Change::Keep,
                        EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight {
                            lease_left,
                            reference: None,
                        })),
                    )
                }
                _ => transition(record, event, now),
            }
        }),
        RETRY,
        CaughtBy::Missing(Seen::GrantedAgain),
    ),
    mutant(
        rules("a completion needs a running lease", |record, event, now, _| match record {
            Some(record) if is_complete(event) && record.lease_expired(now) => fenced(),
            _ => transition(record, event, now),
        }),
        RETRY,
        CaughtBy::Missing(Seen::LateCompletion),
    ),
    mutant(
        rules("a lease is not shortened", |record, event, now, _| {
            let (change, outcome) = transition(record, event, now);
            match (&change, record) {
                (Change::Put(new), Some(old)) if new.lease_until < old.lease_until => {
                    (Change::Keep, outcome)
                }
                _ => (change, outcome),
            }
        }),
        RETRY,
        CaughtBy::Property(RECOVERY),
    ),
];
