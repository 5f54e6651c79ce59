//! The name of the table, and what the statements need of it.

use idempotent_core::{History, StoreError};

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

    /// Replaces `{table}`, `{now}` and `{appended:…}` in a statement.
    pub fn fill(&self, statement: &str, dialect: &Dialect) -> String {
        dialect.fill_appended(statement).replace("{table}", &self.0).replace("{now}", dialect.now)
    }
}

/// What a database writes in another way.
#[derive(Debug)]
pub struct Dialect {
    /// The time in milliseconds since the Unix epoch.
    pub now: &'static str,
    /// The history of a record with one more entry, of which the latest are kept: `{letter}` is an
    /// expression for its letter, `{now}` its time, and `{characters}` the number of characters
    /// that are kept.
    pub appended: &'static str,
}

impl Dialect {
    /// Replaces `{appended:letter}` in a statement with the history that has one more entry.
    /// `letter` is an expression.
    #[must_use]
    pub fn fill_appended(&self, statement: &str) -> String {
        let appended = self.appended.replace("{characters}", &History::MAX_CHARACTERS.to_string());
        let mut parts = statement.split("{appended:");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (letter, rest) = part.split_once('}').unwrap_or((part, ""));
            filled.extend([&appended.replace("{letter}", letter), rest]);
        }
        filled
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
#[must_use]
pub fn columns() -> String {
    literals(&COLUMNS)
}

/// The columns of the log of operators' decisions, in both databases, as literals.
#[must_use]
pub fn audit_columns() -> String {
    literals(&AUDIT_COLUMNS)
}

fn literals(columns: &[&str]) -> String {
    columns.iter().map(|column| format!("'{column}'")).collect::<Vec<_>>().join(", ")
}

const COLUMNS: [&str; 22] = [
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
    "history",
    "watch",
];

const AUDIT_COLUMNS: [&str; 9] =
    ["number", "at", "action", "record_id", "operation", "before", "after", "actor", "reason"];

/// What a check has found out about the table. The lists are separated by commas.
pub struct TableFacts {
    /// Whether the column `id` is unique.
    pub keyed: bool,
    /// Columns of others that must not be null and have no default.
    pub unfilled: String,
    /// Columns that do not exist.
    pub lacking: String,
    /// The log of operators' decisions, if it exists.
    pub log: Option<LogFacts>,
}

/// What a check has found out about the log of operators' decisions. The lists are separated by
/// commas.
pub struct LogFacts {
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
        let name = table.as_str().to_owned();
        let (table, problem) = match self.problem() {
            Some(problem) => (name, problem),
            None => match self.log.map_or(Some(TableProblem::Absent), LogFacts::problem) {
                Some(problem) => (format!("{name}_audit"), problem),
                None => return Ok(()),
            },
        };
        Err(StoreError::permanent(store, operation, UnsuitableTable { table, problem }))
    }

    fn problem(&self) -> Option<TableProblem> {
        if !self.lacking.is_empty() {
            Some(TableProblem::Lacking(self.lacking.clone()))
        } else if !self.keyed {
            Some(TableProblem::NoKey)
        } else if !self.unfilled.is_empty() {
            Some(TableProblem::Unfilled(self.unfilled.clone()))
        } else {
            None
        }
    }
}

impl LogFacts {
    fn problem(self) -> Option<TableProblem> {
        let Self { unfilled, lacking } = self;
        let lacking = (!lacking.is_empty()).then_some(TableProblem::Lacking(lacking));
        lacking.or_else(|| (!unfilled.is_empty()).then_some(TableProblem::Unfilled(unfilled)))
    }
}

/// The table is not as a migration has created it.
#[derive(Debug, thiserror::Error)]
#[error("the table `{table}` cannot be used: {problem}")]
struct UnsuitableTable {
    table: String,
    problem: TableProblem,
}

#[derive(Debug, thiserror::Error)]
enum TableProblem {
    #[error("it does not exist; create it with the SQL in `MIGRATIONS.md`")]
    Absent,
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
    fn every_placeholder_is_filled() {
        let dialect = Dialect { now: "clock()", appended: "last({letter} + {now}, {characters})" };
        let text = "SET a = {appended:'d'}, b = {appended:'h'} FROM {table} WHERE c < {now}";
        assert_eq!(
            TableName::default().fill(text, &dialect),
            "SET a = last('d' + clock(), 192), b = last('h' + clock(), 192) \
             FROM idempotency_records WHERE c < clock()"
        );
    }

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
