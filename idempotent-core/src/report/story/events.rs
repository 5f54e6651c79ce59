//! What has happened: one sentence for each event.

use super::{StoryEvent, event, is_cut, is_of_operator};
use crate::{
    clock::Timestamp,
    history::{Entry, History, Kind},
    policy::Abandoned,
    protocol::{AuditAction, Audited, AuditedState},
    record::{Record, RecordState},
};

/// The events of a record at `now`: those of its history, and those that no store writes, because
/// only time has passed.
pub(super) fn of_record(
    record: &Record,
    now: Timestamp,
    resolution: Option<&Audited>,
) -> Vec<StoryEvent> {
    let mut events = beginning(record);
    let entries: Vec<_> = record.history.entries().collect();
    let takeovers = |entries: &[Entry]| {
        let takeovers = entries.iter().filter(|entry| entry.kind == Kind::TakenOver).count();
        u32::try_from(takeovers).unwrap_or(u32::MAX)
    };
    for (index, entry) in entries.iter().enumerate() {
        let later = entries.get(index + 1..).unwrap_or_default();
        let attempt = record.attempt.saturating_sub(takeovers(later)).max(1);
        events.push(event(entry.at, sentence(entry.kind, attempt, record, resolution)));
    }
    if entries.is_empty() {
        events.extend(ending_without_history(record, resolution));
    }
    events.extend(end_of_lease(record, now));
    if record.is_expired(now) {
        events.push(event(record.expires_at, "The time of the record was over."));
    }
    events
}

/// What is told of a record whose history does not begin with its first claim.
fn beginning(record: &Record) -> Vec<StoryEvent> {
    let claimed = || event(record.first_seen, "The first attempt claimed the key.");
    match record.history.entries().next() {
        None => {
            let text = "The record has no history.";
            vec![StoryEvent { at: None, text: text.into() }, claimed()]
        }
        Some(_) if is_cut(&record.history) => {
            let text = format!(
                "The history keeps the latest {} entries; what came between the first claim and \
                 them is not known.",
                History::MAX_ENTRIES
            );
            vec![claimed(), StoryEvent { at: None, text }]
        }
        Some(_) => Vec::new(),
    }
}

/// How an operation without a history has ended.
fn ending_without_history(record: &Record, resolution: Option<&Audited>) -> Option<StoryEvent> {
    let kind = if is_of_operator(record) { Kind::Resolved } else { Kind::Completed };
    let at = record.completed_at?;
    Some(event(at, sentence(kind, record.attempt, record, resolution)))
}

/// The end of a lease, which no store writes.
fn end_of_lease(record: &Record, now: Timestamp) -> Option<StoryEvent> {
    let has_ended = record.state == RecordState::InFlight && record.lease_expired(now);
    if !has_ended || record.lease_until == Timestamp::EPOCH {
        return None;
    }
    let attempt = record.attempt;
    Some(event(
        record.lease_until,
        match record.abandoned {
            Abandoned::Hold => {
                format!("The lease of attempt {attempt} ended without an outcome: the key is held.")
            }
            Abandoned::Retry => format!(
                "The lease of attempt {attempt} ended without an outcome: the next request may \
                 claim the key."
            ),
        },
    ))
}

/// The sentence about an entry of the history. `attempt` is the one that had the key then.
fn sentence(kind: Kind, attempt: u32, record: &Record, resolution: Option<&Audited>) -> String {
    match kind {
        Kind::Claimed => "The first attempt claimed the key.".into(),
        Kind::TakenOver => format!(
            "Attempt {attempt} claimed the key, because the attempt before it had ended without \
             an outcome."
        ),
        Kind::Abandoned => format!(
            "Attempt {attempt} ended without an outcome: the next request may claim the key."
        ),
        Kind::Held => format!("Attempt {attempt} ended without a known outcome: the key is held."),
        Kind::Completed => {
            format!("Attempt {attempt} completed the operation{}.", with_status(record.status))
        }
        Kind::Resolved => match resolution {
            Some(audited) => of_decision(audited).text,
            None => {
                format!("An operator completed the operation{}.", with_status(record.status))
            }
        },
        Kind::RenewalLost => "An earlier attempt could not renew its lease, because it no longer \
                              had the key."
            .into(),
        Kind::Fenced => "An attempt that no longer had the key tried to end the operation; \
                         nothing was changed."
            .into(),
        Kind::Deferred => "The end of an attempt reached the store only after earlier calls had \
                           failed."
            .into(),
    }
}

fn with_status(status: Option<u16>) -> String {
    status.map(|status| format!(" with status {status}")).unwrap_or_default()
}

/// The event of an operator's decision.
pub(super) fn of_decision(Audited { entry, at }: &Audited) -> StoryEvent {
    let actor = match entry.actor.name.as_str() {
        "" => "An operator",
        name => name,
    };
    let done = match (entry.action, entry.after) {
        (AuditAction::Complete, AuditedState::Completed(status)) => {
            format!("completed the held operation{}", with_status(status))
        }
        (AuditAction::Complete, _) => "completed the held operation".into(),
        (AuditAction::Release, _) => {
            "released the held key, so that the next request runs the operation".into()
        }
        (AuditAction::Forget, _) => {
            format!("removed the record, which was {}, so that its key is free", entry.before)
        }
        (AuditAction::Erase, _) => {
            format!(
                "erased the record, which was {}, with the others of its principal",
                entry.before
            )
        }
    };
    let reason = match entry.actor.reason.as_str() {
        "" => "no reason was given".to_owned(),
        reason => format!("“{reason}”"),
    };
    event(*at, format!("{actor} {done}: {reason}."))
}
