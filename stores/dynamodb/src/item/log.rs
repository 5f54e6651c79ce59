//! The entries of the log of operators' decisions.

use idempotent_core::{
    RecordId, ShortText,
    clock::Timestamp,
    protocol::{Actor, AuditEntry, Audited},
};

use super::{
    decode::short_text,
    keys::Keys,
    names,
    values::{Item, bytes, number, text},
};
use crate::error::Unreadable;

/// The item of an entry that is written at this time.
pub(crate) fn log_entry(keys: &Keys, place: &RecordId, entry: &AuditEntry, at: Timestamp) -> Item {
    let fields = [
        (names::ACTION, entry.action.to_string()),
        (names::ABOUT, entry.id.to_string()),
        (names::OPERATION, entry.operation.to_string()),
        (names::BEFORE, entry.before.to_string()),
        (names::AFTER, entry.after.to_string()),
        (names::ACTOR, entry.actor.name.to_string()),
        (names::REASON, entry.actor.reason.to_string()),
        (names::WATCHED, keys.log_shard()),
    ];
    let mut item: Item =
        fields.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
    item.insert(names::ID.to_owned(), bytes(&keys.log(place)));
    item.insert(names::FIRST_SEEN.to_owned(), number(at.as_millis()));
    item
}

/// Reads an entry. Attributes that this version does not know are ignored.
pub(crate) fn read_log_entry(item: &Item) -> Result<Audited, Unreadable> {
    let field = |name| Ok::<ShortText, Unreadable>(short_text(item, name)?.unwrap_or_default());
    let id: RecordId = field(names::ABOUT)?.parse().map_err(|_| Unreadable)?;
    let action = field(names::ACTION)?.parse().map_err(|_| Unreadable)?;
    let before = field(names::BEFORE)?.parse().map_err(|_| Unreadable)?;
    let actor = Actor::new(&field(names::ACTOR)?, &field(names::REASON)?);
    let mut entry = AuditEntry::new(action, id, before, actor);
    entry.after = field(names::AFTER)?.parse().map_err(|_| Unreadable)?;
    entry.operation = field(names::OPERATION)?;
    let at = item.get(names::FIRST_SEEN).and_then(|at| at.as_n().ok()).ok_or(Unreadable)?;
    let at = at.parse().map_err(|_| Unreadable)?;
    Ok(Audited::new(entry, Timestamp::from_millis(at)))
}
