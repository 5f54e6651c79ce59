//! The entries of the log of operators' decisions: the fields of an entry of a stream.

use idempotent_core::{
    RecordId,
    protocol::{Actor, AuditEntry},
};

use super::{decode::short_text, layout::Unreadable};

const ACTION: &str = "action";
const ID: &str = "id";
const OPERATION: &str = "operation";
const BEFORE: &str = "before";
const AFTER: &str = "after";
const ACTOR: &str = "actor";
const REASON: &str = "reason";

/// The names and the values of an entry, without the state before: the script adds that of the
/// record. A value that the entry does not have is empty.
pub(crate) fn log_entry(entry: &AuditEntry) -> [String; 12] {
    let text = |text: &str| text.to_owned();
    [
        ACTION.into(),
        entry.action.to_string(),
        ID.into(),
        entry.id.to_string(),
        OPERATION.into(),
        text(&entry.operation),
        AFTER.into(),
        entry.after.to_string(),
        ACTOR.into(),
        text(&entry.actor.name),
        REASON.into(),
        text(&entry.actor.reason),
    ]
}

/// Reads an entry of the log. Names that this version does not know are ignored.
pub(crate) fn read_log_entry(fields: &[(String, Vec<u8>)]) -> Result<AuditEntry, Unreadable> {
    let value = |name: &str| {
        let field = fields.iter().find(|(known, _)| known == name);
        short_text(field.map_or(&[], |(_, value)| value))
    };
    let id: RecordId = value(ID)?.parse().map_err(|_| Unreadable)?;
    let action = value(ACTION)?.parse().map_err(|_| Unreadable)?;
    let before = value(BEFORE)?.parse().map_err(|_| Unreadable)?;
    let actor = Actor::new(&value(ACTOR)?, &value(REASON)?);
    let mut entry = AuditEntry::new(action, id, before, actor);
    entry.after = value(AFTER)?.parse().map_err(|_| Unreadable)?;
    entry.operation = value(OPERATION)?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use idempotent_core::{
        ShortText,
        protocol::{AuditAction, AuditedState},
    };

    use super::*;

    fn fields(entry: &AuditEntry) -> Vec<(String, Vec<u8>)> {
        let texts = log_entry(entry);
        let (pairs, _) = texts.as_chunks::<2>();
        let pairs = pairs.iter().map(|[name, value]| (name.clone(), value.clone().into_bytes()));
        let by_script = (BEFORE.to_owned(), entry.before.to_string().into_bytes());
        pairs.chain([by_script]).collect()
    }

    #[test]
    fn an_entry_is_written_and_read() {
        let id = RecordId::from_bytes([0xab; 32]);
        let actor = Actor::new("ada", "as the bank's \"books\" say \u{1f600}");
        let mut entry = AuditEntry::new(AuditAction::Complete, id, AuditedState::Held, actor);
        assert_eq!(read_log_entry(&fields(&entry)), Ok(entry.clone()));
        entry.operation = ShortText::new("POST /v1/payments").unwrap();
        entry.after = AuditedState::Completed(Some(201));
        assert_eq!(read_log_entry(&fields(&entry)), Ok(entry.clone()));
        let mut later = fields(&entry);
        later.push(("ticket".to_owned(), b"\xff".to_vec()));
        assert_eq!(read_log_entry(&later), Ok(entry));
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_an_error() {
        let id = RecordId::from_bytes([0; 32]);
        let actor = Actor::new("ada", "");
        let entry = AuditEntry::new(AuditAction::Forget, id, AuditedState::InFlight, actor);
        for name in [ACTION, ID, BEFORE, AFTER, OPERATION] {
            let mut wrong = fields(&entry);
            wrong.iter_mut().find(|(known, _)| known == name).unwrap().1 = b"wrong\n".to_vec();
            assert_eq!(read_log_entry(&wrong), Err(Unreadable), "{name}");
        }
        assert_eq!(read_log_entry(&[]), Err(Unreadable));
    }
}
