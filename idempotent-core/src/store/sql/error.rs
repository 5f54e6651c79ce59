//! Errors that the SQL stores have in common.

use std::error::Error;

use super::TableName;

/// The table does not exist.
#[derive(Debug, thiserror::Error)]
#[error("the table `{}` does not exist; call `migrate()` on the store at start", table.as_str())]
pub(crate) struct MissingTable {
    pub(crate) table: TableName,
    pub(crate) source: Box<dyn Error + Send + Sync>,
}

/// Concurrent claims for the same key won every round.
#[derive(Debug, thiserror::Error)]
#[error("the record kept changing under concurrent claims for the same key")]
pub(crate) struct ClaimContention;

/// A setting under which records could be lost.
#[derive(Debug, thiserror::Error)]
#[error("the {database} setting `{setting}` is `{actual}`; it must be {required}")]
pub(crate) struct UnsafeSetting {
    pub(crate) database: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) actual: String,
    pub(crate) required: &'static str,
}
