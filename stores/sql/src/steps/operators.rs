//! The parameters of the steps for operators.

use super::{Steps, fenced};
use crate::statement::{Statement, Value};
use idempotent_core::{
    Lease, RecordId, ShortText,
    history::Kind,
    protocol::{AuditEntry, RecordFilter, Removal, Replacement},
};

impl<T> Steps<T> {
    /// Lists up to `count` of the records that may need somebody, after the one with this time of
    /// its first claim and this id.
    pub fn watched(&self, after: Option<(u64, RecordId)>, count: u32) -> Statement<'_, T> {
        let (time, id) = after.map_or((-1, Vec::new()), |(time, id)| {
            (i64::try_from(time).unwrap_or(i64::MAX), id.as_bytes().to_vec())
        });
        let values = vec![Value::Int(time), Value::Bytes(id.into()), Value::Int(count.into())];
        Statement::by_index(&self.watched, values)
    }

    /// Reads `count` records after this id, and returns those that the filter may match.
    pub fn scan<'a>(
        &'a self,
        filter: &'a RecordFilter,
        after: Option<RecordId>,
        count: u32,
    ) -> Statement<'a, T> {
        let after = after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
        let principals: Vec<u8> =
            filter.principals.iter().flat_map(|principal| *principal.as_bytes()).collect();
        let text = |text: &'a Option<ShortText>| Value::text(text.as_deref().unwrap_or_default());
        let values = vec![
            Value::Bytes(after.into()),
            Value::Int(count.into()),
            text(&filter.operation),
            Value::Bytes(principals.into()),
            text(&filter.reference),
        ];
        Statement::by_index(&self.scan, values)
    }

    /// Finds the records whose ids are in this range.
    pub fn find<'a>(
        &'a self,
        first: &'a RecordId,
        last: &'a RecordId,
        limit: u32,
    ) -> Statement<'a, T> {
        let ends = [first, last].map(|id| Value::bytes(id.as_bytes()));
        Statement::by_index(&self.find, ends.into()).with_values([Value::Int(limit.into())])
    }

    /// Removes the record that was seen.
    pub fn remove<'a>(&'a self, seen: &'a Lease, removal: &Removal) -> Statement<'a, T> {
        fenced(&self.remove, seen).with_values([Value::Int(removal.live.into())])
    }

    /// Replaces bytes of the record that was seen.
    pub fn replace<'a>(
        &'a self,
        seen: &'a Lease,
        replacement: &'a Replacement,
    ) -> Statement<'a, T> {
        let Replacement { was, becomes, .. } = replacement;
        let parts = [
            &was.recording,
            &becomes.recording,
            &was.steps,
            &becomes.steps,
            &was.input,
            &becomes.input,
        ];
        let values = parts.map(|bytes| Value::bytes(bytes));
        Statement { confidential: true, ..fenced(&self.replace, seen).with_values(values) }
    }

    /// Appends an entry to the history of a record.
    pub fn append_history<'a>(&'a self, id: &'a RecordId, kind: Kind) -> Statement<'a, T> {
        let letter = char::from(kind.letter()).to_string();
        Statement::new(
            &self.append_history,
            vec![Value::bytes(id.as_bytes()), Value::Text(letter.into())],
        )
    }

    /// Counts the records.
    pub fn count(&self) -> Statement<'_, T> {
        Statement::by_index(&self.count, Vec::new())
    }

    /// Reads the sizes and settings of the database.
    pub fn measure(&self) -> Statement<'_, T> {
        Statement::new(&self.measure, Vec::new())
    }

    /// Reads up to `count` entries of the log before the one with this number.
    pub fn audit(&self, before: Option<u64>, count: i64) -> Statement<'_, T> {
        let before = before.and_then(|number| i64::try_from(number).ok()).unwrap_or(i64::MAX);
        Statement::by_index(&self.audit, vec![Value::Int(before), Value::Int(count)])
    }
}

/// The values of an entry of the log of operators' decisions, without the state before, which is
/// that of the record that is changed.
#[must_use]
pub fn audit_values(entry: &AuditEntry) -> Vec<Value<'_>> {
    vec![
        Value::text(entry.action.as_str()),
        Value::bytes(entry.id.as_bytes()),
        Value::text(&entry.operation),
        Value::Text(entry.after.to_string().into()),
        Value::text(&entry.actor.name),
        Value::text(&entry.actor.reason),
    ]
}
