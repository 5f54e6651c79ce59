//! What the statements need of the table.

use super::TableName;

/// The columns of the table, in both databases, as literals.
pub fn columns() -> String {
    COLUMNS.map(|column| format!("'{column}'")).join(", ")
}

const COLUMNS: [&str; 20] = [
    "id",
    "fingerprint",
    "owner",
    "attempt",
    "lease",
    "lease_until",
    "first_seen",
    "expires_at",
    "state",
    "abandoned",
    "recording",
    "kept",
    "operation",
    "principal",
    "completed_at",
    "status",
    "reference",
    "progress",
    "steps",
    "input",
];

/// What a check has found out about the table. The lists are separated by commas.
pub struct TableFacts {
    /// Whether the column `id` is unique.
    pub keyed: bool,
    /// Columns of others that must not be null and have no default.
    pub unfilled: String,
    /// Columns that do not exist.
    pub lacking: String,
}

impl TableFacts {
    /// Verifies that the table can be used.
    ///
    /// # Errors
    /// Fails with the first problem found.
    pub fn verify(self, table: &TableName) -> Result<(), UnsuitableTable> {
        let problem = if !self.lacking.is_empty() {
            TableProblem::Lacking(self.lacking)
        } else if !self.keyed {
            TableProblem::NoKey
        } else if !self.unfilled.is_empty() {
            TableProblem::Unfilled(self.unfilled)
        } else {
            return Ok(());
        };
        Err(UnsuitableTable { table: table.clone(), problem })
    }
}

/// The table is not as a migration has created it.
#[derive(Debug, thiserror::Error)]
#[error("the table `{}` cannot be used: {problem}", table.as_str())]
pub struct UnsuitableTable {
    table: TableName,
    problem: TableProblem,
}

#[derive(Debug, thiserror::Error)]
enum TableProblem {
    #[error("it lacks the columns {0}")]
    Lacking(String),
    #[error(
        "its column `id` is not unique, so keys could be claimed twice; make it the primary key"
    )]
    NoKey,
    #[error(
        "its columns {0} must not be null, and the store does not fill them; give them defaults"
    )]
    Unfilled(String),
}
