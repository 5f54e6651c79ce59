//! The name of the table, and what the statements need of it.

use idempotent_core::StoreError;

/// The name of a table or of its schema: 1 to 48 ASCII letters, digits and underscores, not
/// starting with a digit. No other text is ever inserted into a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName(String);

impl TableName {
    /// The name of the table unless another one is chosen.
    pub const DEFAULT: &'static str = "idempotency_records";
    const MAX: usize = 48;

    fn new(name: &str) -> Result<Self, InvalidTableName> {
        let word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let starts = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if word && starts && name.len() <= Self::MAX {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidTableName)
        }
    }

    /// Creates the name that an option of a store sets.
    ///
    /// # Errors
    /// Fails with a permanent error of the store that names the option if the text is not such a
    /// word.
    pub fn of_option(
        store: &'static str,
        option: &'static str,
        name: &str,
    ) -> Result<Self, StoreError> {
        Self::new(name).map_err(|source| {
            StoreError::permanent(store, "connect", InvalidOption { option, source })
        })
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Replaces `{table}` and `{now}` in a statement.
    pub fn fill(&self, statement: &str, now: &str) -> String {
        statement.replace("{table}", &self.0).replace("{now}", now)
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

/// The error of a table or schema name that a SQL store refuses: it is not 1 to 48 ASCII letters,
/// digits and underscores, or it starts with a digit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a table or schema must be 1 to {max} ASCII letters, digits and underscores, \
     and must not start with a digit",
    max = TableName::MAX
)]
struct InvalidTableName;

/// An option of a store that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the option `{option}` is invalid")]
struct InvalidOption {
    option: &'static str,
    source: InvalidTableName,
}

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
    /// Fails with a permanent error of the store that says what was found first.
    pub fn verify(
        self,
        store: &'static str,
        operation: &'static str,
        table: &TableName,
    ) -> Result<(), StoreError> {
        let problem = if !self.lacking.is_empty() {
            TableProblem::Lacking(self.lacking)
        } else if !self.keyed {
            TableProblem::NoKey
        } else if !self.unfilled.is_empty() {
            TableProblem::Unfilled(self.unfilled)
        } else {
            return Ok(());
        };
        let unsuitable = UnsuitableTable { table: table.clone(), problem };
        Err(StoreError::permanent(store, operation, unsuitable))
    }
}

/// The table is not as a migration has created it.
#[derive(Debug, thiserror::Error)]
#[error("the table `{}` cannot be used: {problem}", table.as_str())]
struct UnsuitableTable {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_a_word() {
        for name in ["t", "idempotency_records", "_2", &"x".repeat(48)] {
            assert_eq!(TableName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "2t", "a b", "a\"b", "a;b", "é", "main.t", &"x".repeat(49)] {
            assert_eq!(TableName::new(name), Err(InvalidTableName), "{name}");
        }
    }
}
