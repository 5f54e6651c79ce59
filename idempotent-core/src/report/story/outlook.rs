//! What holds now, and what to do.

use crate::{
    clock::Timestamp,
    record::{Record, RecordState},
    report::{ShownDuration, ShownState, Time, record::is_of_operator},
};

/// What holds of a key without a record, and what to do.
pub(super) fn of_absent_key() -> (String, Option<String>) {
    let conclusion =
        "There is no record of this key: the next request with it runs the operation.".into();
    (conclusion, None)
}

/// What holds of a record in this state at `now`, and what to do.
pub(super) fn of_record(
    record: &Record,
    state: ShownState,
    now: Timestamp,
) -> (String, Option<String>) {
    match state {
        ShownState::InFlight => (in_flight(record, now), None),
        ShownState::Abandoned => (abandoned(record), None),
        ShownState::Held => (HELD.into(), Some(how_to_resolve(record))),
        ShownState::Completed => (completed(record), None),
        ShownState::Expired => (expired(record), None),
    }
}

const HELD: &str = "The key is held: it is not known whether the operation took effect. No request \
                    with this key runs until somebody resolves it.";

fn in_flight(record: &Record, now: Timestamp) -> String {
    let age = ShownDuration(now.duration_since(record.first_seen));
    let left = ShownDuration(record.lease_left(now));
    let progress = record.notes.progress.as_ref();
    let progress = progress
        .map(|progress| format!(" Its last progress was “{progress}”."))
        .unwrap_or_default();
    format!(
        "Attempt {} is in flight, and the key was first claimed {age} ago. Its lease ends in \
         {left} unless it is renewed.{progress}",
        record.attempt
    )
}

fn abandoned(record: &Record) -> String {
    let input = if record.notes.input.is_empty() {
        ""
    } else {
        " It has stored its input, so a completer may run it without a request."
    };
    format!(
        "Attempt {} ended without an outcome. The next request with this key runs the operation \
         again.{input}",
        record.attempt
    )
}

fn completed(record: &Record) -> String {
    let response = match record.status {
        Some(status) => format!("the recorded response with status {status}"),
        None => "the recorded outcome".into(),
    };
    let by = if is_of_operator(record) { " by an operator" } else { "" };
    format!(
        "The operation is completed{by}. Requests with this key get {response} until {}.",
        Time::from(record.expires_at)
    )
}

fn expired(record: &Record) -> String {
    let was = match record.state {
        RecordState::Completed(_) => "completed",
        RecordState::InFlight | RecordState::Held => "abandoned",
    };
    format!(
        "The record of the {was} operation has expired: the next request with this key runs the \
         operation, and the next purge removes the record."
    )
}

/// What to do about a held key.
fn how_to_resolve(record: &Record) -> String {
    let search = match (&record.notes.reference, record.operation.as_str()) {
        (Some(reference), _) => {
            format!("Look up the reference {reference} where the operation has its effects")
        }
        (None, "") => {
            format!(
                "The handler has noted no reference. Search for the effects of the operation from \
                 {} on",
                Time::from(record.first_seen)
            )
        }
        (None, operation) => format!(
            "The handler has noted no reference. Search for the effects of {operation} from {} on",
            Time::from(record.first_seen)
        ),
    };
    let progress = record.notes.progress.as_ref();
    let progress = progress
        .map(|progress| format!(" (its last progress was “{progress}”)"))
        .unwrap_or_default();
    format!(
        "{search}{progress}. If it took effect, resolve the key with the response that the client \
         should get; if it did not, release the key."
    )
}
