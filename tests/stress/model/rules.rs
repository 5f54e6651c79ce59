//! The rules of a store: those of the shipped state machine, or altered ones.

use idempotent_core::{
    Fingerprint, Record,
    clock::Timestamp,
    protocol::Fence,
    transition::{Change, Event, EventOutcome, transition},
};

/// One step by the rules. The last argument is the number of the attempt with which the sender was
/// granted the key.
type Step = fn(Option<&Record>, &Event<'_>, Timestamp, u32) -> (Change, EventOutcome);

/// The rules of a store.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) name: &'static str,
    pub(super) step: Step,
    /// Whether the store checks in one step and acts in another.
    pub(super) check_then_act: bool,
    /// Whether a step depends on the attempt's number.
    pub(super) numbered: bool,
}

pub(super) const fn rules(name: &'static str, step: Step) -> Rules {
    Rules { name, step, check_then_act: false, numbered: false }
}

/// The shipped rules.
pub(super) const SHIPPED: Rules =
    rules("shipped", |record, event, now, _| transition(record, event, now));

/// Rules that differ from the shipped ones in nothing that an invariant is about.
pub(super) const NO_OPS: &[Rules] = &[
    rules("a kept record is written again", |record, event, now, _| {
        match (transition(record, event, now), record) {
            ((Change::Keep, outcome), Some(record)) => (Change::Put(record.clone()), outcome),
            (result, _) => result,
        }
    }),
    rules("the attempts are not counted", |record, event, now, _| {
        let (change, outcome) = transition(record, event, now);
        (with(change, |record| record.attempt = 1), outcome)
    }),
    rules("a purge precedes each claim", |record, event, now, _| {
        let purged = match transition(record, &Event::Purge, now).0 {
            Change::Remove => None,
            Change::Put(shortened) => Some(shortened),
            Change::Keep => record.cloned(),
        };
        match (event, transition(purged.as_ref(), event, now)) {
            (Event::Claim(_), (Change::Keep, outcome)) => (put(purged), outcome),
            (Event::Claim(_), result) => result,
            _ => transition(record, event, now),
        }
    }),
    rules("each step is executed twice", |record, event, now, _| {
        let (change, outcome) = transition(record, event, now);
        match (&change, event) {
            (Change::Put(new), Event::Claim(_) | Event::Complete(..) | Event::Renew(..)) => {
                match transition(Some(new), event, now).0 {
                    Change::Keep => (change, outcome),
                    again => (again, outcome),
                }
            }
            _ => (change, outcome),
        }
    }),
];

fn put(record: Option<Record>) -> Change {
    record.map_or(Change::Remove, Change::Put)
}

pub(super) fn is_complete(event: &Event<'_>) -> bool {
    matches!(event, Event::Complete(..))
}

pub(super) fn is_release(event: &Event<'_>) -> bool {
    matches!(event, Event::Release(..))
}

pub(super) fn is_renew(event: &Event<'_>) -> bool {
    matches!(event, Event::Renew(..))
}

pub(super) fn is_abandon(event: &Event<'_>) -> bool {
    matches!(event, Event::Abandon(..))
}

pub(super) fn is_resolve(event: &Event<'_>) -> bool {
    matches!(event, Event::Resolve(..))
}

pub(super) fn fenced() -> (Change, EventOutcome) {
    (Change::Keep, EventOutcome::Fence(Fence::Fenced))
}

pub(super) fn remove(_: &Record) -> (Change, EventOutcome) {
    (Change::Remove, EventOutcome::Purge(true))
}

/// The change with its record altered.
pub(super) fn with(change: Change, alter: impl FnOnce(&mut Record)) -> Change {
    match change {
        Change::Put(mut record) => {
            alter(&mut record);
            Change::Put(record)
        }
        change => change,
    }
}

/// A step on an altered record.
pub(super) fn altered(
    record: Option<&Record>,
    event: &Event<'_>,
    now: Timestamp,
    alter: impl FnOnce(&mut Record, &Event<'_>),
) -> (Change, EventOutcome) {
    let altered = record.cloned().map(|mut record| {
        alter(&mut record, event);
        record
    });
    transition(altered.as_ref(), event, now)
}

/// A step that takes the sender for the owner.
pub(super) fn unfenced(
    record: Option<&Record>,
    event: &Event<'_>,
    now: Timestamp,
    without_fence: fn(&Event<'_>) -> bool,
) -> (Change, EventOutcome) {
    let Some(owner) = record.map(|record| record.owner).filter(|_| without_fence(event)) else {
        return transition(record, event, now);
    };
    let event = match event {
        Event::Note(_, note) => Event::Note(owner, note),
        Event::Complete(_, recording) => Event::Complete(owner, recording),
        Event::Release(_) => Event::Release(owner),
        Event::Renew(_, lease) => Event::Renew(owner, *lease),
        Event::Abandon(_, policy) => Event::Abandon(owner, *policy),
        Event::Resolve(_, resolution) => Event::Resolve(owner, resolution),
        Event::Claim(claim) => Event::Claim(claim),
        Event::Remove(_) | Event::Replace(_) | Event::Append(_) | Event::Purge => event.clone(),
    };
    transition(record, &event, now)
}

/// A step whose fence is the number of the attempt.
pub(super) fn numbered(
    record: Option<&Record>,
    event: &Event<'_>,
    now: Timestamp,
    number: u32,
) -> (Change, EventOutcome) {
    let same = record.is_some_and(|record| record.attempt == number);
    unfenced(record, event, now, if same { |event| !is_resolve(event) } else { |_| false })
}

/// A renewal that inserts a record if there is none.
pub(super) fn upserting_renewal(
    record: Option<&Record>,
    event: &Event<'_>,
    now: Timestamp,
    _: u32,
) -> (Change, EventOutcome) {
    let Event::Renew(owner, lease) = event else { return transition(record, event, now) };
    match record {
        None => {
            let fingerprint = Fingerprint::from_bytes([1; Fingerprint::BYTES]);
            let mut inserted = Record::new(fingerprint, *owner, now, now.after(*lease));
            inserted.lease_until = now.after(*lease);
            (Change::Put(inserted), EventOutcome::Fence(Fence::Passed))
        }
        Some(_) => transition(record, event, now),
    }
}
