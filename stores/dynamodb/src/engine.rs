//! What each step of the store takes: the table, the keys of its items, and the conditions.

use crate::{
    error::CallFailure,
    guards::Guard,
    item::{Keys, Stored, decode},
    options::DynamoDbOptions,
    service_time::Now,
    table::{Expression, Table, Value},
};
use idempotent_core::RecordId;

/// What a store and its clones share.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) table: Table,
    pub(crate) keys: Keys,
    pub(crate) single_writer_region: bool,
    /// The guard that a test has removed.
    pub(crate) removed: Option<&'static str>,
}

impl Engine {
    pub(crate) fn new(table: Table, options: &DynamoDbOptions) -> Self {
        let DynamoDbOptions { key_prefix, single_writer_region, .. } = options;
        let (keys, single_writer_region) = (Keys::new(key_prefix), *single_writer_region);
        Self { table, keys, single_writer_region, removed: None }
    }

    /// The expressions of a write.
    pub(crate) fn expression(
        &self,
        update: Option<String>,
        guards: &[Guard],
        values: Vec<Value>,
    ) -> Expression {
        let guards = guards.iter().filter(|guard| Some(guard.name) != self.removed);
        let guards: Vec<_> = guards.map(|guard| guard.text).collect();
        let condition = Some(guards.join(" AND ")).filter(|condition| !condition.is_empty());
        Expression::new(update, condition, values)
    }

    /// The time of the service.
    pub(crate) async fn now(&self, id: &RecordId) -> Result<Now, CallFailure> {
        self.table.now(&self.keys.record(id)).await
    }

    /// Reads a record, which may have expired.
    pub(crate) async fn read(&self, id: &RecordId) -> Result<Option<Stored>, CallFailure> {
        let item = self.table.get(&self.keys.record(id)).await?;
        Ok(item.as_ref().map(decode).transpose()?)
    }
}
