//! Decoding the item of a record.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, History, OwnerToken, Principal, Record, RecordState, ShortText,
    clock::Timestamp,
};

use super::{
    contents::{Content, Contents},
    names,
    stored::{Stored, Tag},
    values::Item,
};
use crate::error::Unreadable;

/// Decodes the item of a record.
pub(crate) fn decode(item: &Item) -> Result<Stored, Unreadable> {
    let stored = decode_listed(item)?;
    let is_completed = matches!(stored.record.state, RecordState::Completed(_));
    let steps = item.get(names::STEPS).ok_or(Unreadable)?.as_l().map_err(|_| Unreadable)?;
    let content = |name| item.get(name).map(Content::read).transpose();
    let contents = Contents {
        recording: content(names::RECORDING)?,
        steps: steps.iter().map(Content::read).collect::<Result<_, _>>()?,
        input: content(names::INPUT)?,
    };
    if contents.recording.is_some() != is_completed {
        return Err(Unreadable);
    }
    Ok(Stored { contents, ..stored })
}

/// Decodes the attributes of a record that [lists](names::LISTED) show.
pub(crate) fn decode_listed(item: &Item) -> Result<Stored, Unreadable> {
    if item.get(names::VERSION).and_then(|version| version.as_n().ok()).map(String::as_str)
        != Some(names::FIRST_VERSION)
    {
        return Err(Unreadable);
    }
    let time = |name| number(item, name).map(Timestamp::from_millis);
    let fingerprint = Fingerprint::from_bytes(array(item, names::FINGERPRINT)?);
    let owner = OwnerToken::from_bytes(array(item, names::OWNER)?);
    let (first_seen, expires_at) = (time(names::FIRST_SEEN)?, time(names::EXPIRES)?);
    let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
    record.attempt = u32::try_from(number(item, names::ATTEMPT)?).map_err(|_| Unreadable)?;
    record.lease = Duration::from_millis(number(item, names::LEASE)?);
    record.lease_until = time(names::UNTIL)?;
    record.abandoned = match number(item, names::HOLD)? {
        0 => Abandoned::Retry,
        1 => Abandoned::Hold,
        _ => return Err(Unreadable),
    };
    record.state = match number(item, names::STATE)? {
        1 => RecordState::InFlight,
        2 => RecordState::Completed(Bytes::new()),
        3 => RecordState::Held,
        _ => return Err(Unreadable),
    };
    let optional = |name| item.get(name).map(|_| number(item, name)).transpose();
    record.completed_at = optional(names::COMPLETED)?.map(Timestamp::from_millis);
    let status = optional(names::STATUS)?.map(u16::try_from).transpose();
    record.status = status.map_err(|_| Unreadable)?;
    record.operation = short_text(item, names::OPERATION)?.unwrap_or_default();
    let principal =
        item.get(names::PRINCIPAL).map(|_| array(item, names::PRINCIPAL)).transpose()?;
    record.principal = principal.map(Principal::from_bytes);
    record.notes.reference = short_text(item, names::REFERENCE)?;
    record.notes.progress = short_text(item, names::PROGRESS)?;
    record.history = history(item)?;
    Ok(Stored {
        record,
        contents: Contents::default(),
        tag: Tag::of(array(item, names::TAG)?),
        noted: Tag::of(array(item, names::NOTED)?),
        watched: item.contains_key(names::WATCHED),
    })
}

fn number(item: &Item, name: &str) -> Result<u64, Unreadable> {
    let number = item.get(name).and_then(|value| value.as_n().ok()).ok_or(Unreadable)?;
    number.parse().map_err(|_| Unreadable)
}

fn array<const N: usize>(item: &Item, name: &str) -> Result<[u8; N], Unreadable> {
    let value = item.get(name).and_then(|value| value.as_b().ok()).ok_or(Unreadable)?;
    value.as_ref().try_into().map_err(|_| Unreadable)
}

pub(super) fn short_text(item: &Item, name: &str) -> Result<Option<ShortText>, Unreadable> {
    let Some(value) = item.get(name) else { return Ok(None) };
    let text = value.as_s().map_err(|_| Unreadable)?;
    ShortText::new(text).map(Some).map_err(|_| Unreadable)
}

/// The latest entries of the list: a step appends one without removing the first.
fn history(item: &Item) -> Result<History, Unreadable> {
    let entries = item.get(names::HISTORY).ok_or(Unreadable)?.as_l().map_err(|_| Unreadable)?;
    let latest = entries.len().saturating_sub(History::MAX_ENTRIES);
    let mut text = String::new();
    for entry in entries.iter().skip(latest) {
        text += entry.as_s().map_err(|_| Unreadable)?;
    }
    History::decode(&text).map_err(|_| Unreadable)
}
