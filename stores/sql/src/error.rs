//! Errors that the SQL stores have in common.

use std::error::Error;

use crate::table::TableName;

/// The table does not exist.
#[derive(Debug, thiserror::Error)]
#[error("the table `{table}` does not exist{}", self.advice(), table = table.as_str())]
pub struct MissingTable {
    /// The operation that failed.
    pub operation: &'static str,
    /// The table that was expected.
    pub table: TableName,
    /// The error of the database, if it reported one.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl MissingTable {
    fn advice(&self) -> String {
        if self.operation != "migrate" {
            return "; call `migrate()` on the store at start".to_owned();
        }
        // A new table is not created, because the records may be elsewhere.
        let table = self.table.as_str();
        format!(
            ", although `{table}_migrations` states that it was created: if it was moved or \
             renamed, move it back; if it was dropped, drop `{table}_migrations` as well and call \
             `migrate()` again, which creates both"
        )
    }
}

/// Concurrent claims for the same key won every round.
#[derive(Debug, thiserror::Error)]
#[error("the record kept changing under concurrent claims for the same key")]
pub struct ClaimContention;

/// A setting under which records could be lost.
#[derive(Debug, thiserror::Error)]
#[error("the {database} setting `{setting}` is `{actual}`; it must be {required}")]
pub struct UnsafeSetting {
    /// The name of the database system.
    pub database: &'static str,
    /// The name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub actual: String,
    /// What it must be, in words.
    pub required: &'static str,
}
