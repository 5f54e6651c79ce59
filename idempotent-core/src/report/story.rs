//! The story of one key, in English.

use std::fmt;

use serde::Serialize;

use super::{
    ShownState, Time, as_text,
    record::{is_cut, is_of_operator},
};
use crate::{
    clock::Timestamp,
    protocol::{AuditAction, Audited, Snapshot},
    record::Record,
    record_id::RecordId,
};

mod events;
mod outlook;

/// The story of one key, from [`explain`]. `Display` writes it for people: a line for each event,
/// and then what holds now and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Story {
    /// The whole id of the record.
    #[serde(serialize_with = "as_text")]
    pub id: RecordId,
    /// The state of the record; `None` if the key is absent.
    pub state: Option<ShownState>,
    /// What has happened, in its order.
    pub events: Vec<StoryEvent>,
    /// What holds now, in sentences.
    pub conclusion: String,
    /// What an operator should do, if anything.
    pub advice: Option<String>,
}

/// One event of a [`Story`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoryEvent {
    /// When it happened, by the store's clock. `None` if that is not known.
    pub at: Option<Time>,
    /// What happened, in a sentence.
    pub text: String,
}

/// Tells the story of one key from its record, if there is one, and from the entries of the log of
/// operators' decisions, in any order. Entries about other records are left out.
///
/// ```
/// use idempotent_core::{RecordId, report::explain};
///
/// let story = explain(&RecordId::from_bytes([0xab; 32]), None, &[]);
/// assert!(story.to_string().contains("no record of this key"));
/// ```
#[must_use]
pub fn explain(id: &RecordId, found: Option<&Snapshot>, audited: &[Audited]) -> Story {
    let mut decisions: Vec<_> = audited.iter().filter(|audited| audited.entry.id == *id).collect();
    decisions.sort_by_key(|audited| audited.at);
    let Some(Snapshot { record, at }) = found else {
        let events = decisions.into_iter().map(events::of_decision).collect();
        let (conclusion, advice) = outlook::of_absent_key();
        return Story { id: *id, state: None, events, conclusion, advice };
    };
    // This one is the entry `resolved` of the history.
    let resolution = decisions.iter().rposition(|audited| is_resolution_of(record, audited));
    let resolution = resolution.map(|index| decisions.remove(index));
    let mut events = events::of_record(record, *at, resolution);
    for audited in decisions {
        // The history is in the order in which it was written, also after the store's clock was
        // set back.
        let decision = events::of_decision(audited);
        let index = events.iter().position(|event| event.at > decision.at);
        events.insert(index.unwrap_or(events.len()), decision);
    }
    let state = ShownState::of(record, *at);
    let (conclusion, advice) = outlook::of_record(record, state, *at);
    Story { id: *id, state: Some(state), events, conclusion, advice }
}

/// Whether the entry of the log tells how the operation of this record was completed.
fn is_resolution_of(record: &Record, audited: &Audited) -> bool {
    is_of_operator(record)
        && audited.entry.action == AuditAction::Complete
        && audited.at >= record.first_seen
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StoryEvent { at, text } in &self.events {
            match at {
                Some(at) => writeln!(f, "{at}: {text}")?,
                None => writeln!(f, "{text}")?,
            }
        }
        f.write_str(&self.conclusion)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "\n{advice}"))
    }
}

fn event(at: Timestamp, text: impl Into<String>) -> StoryEvent {
    StoryEvent { at: Some(at.into()), text: text.into() }
}

#[cfg(test)]
mod tests;
