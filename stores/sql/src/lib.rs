//! What the SQL stores of [`idempotent-actix`] share: pools, group commit, statements, the
//! decoding of rows, and migrations.
//!
//! Not for applications. No promise is made about its API: `idempotent-sqlite` and
//! `idempotent-postgres` pin its version.
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix

use std::{fmt, time::Duration};

use idempotent_core::{
    Abandoned, EncodedRecording, RecordState,
    clock::{Timestamp, millis},
    protocol::Fence,
};

mod error;
pub mod group_commit;
mod migrations;
mod pool;
mod row;
pub mod statement;
pub mod steps;
mod table;

pub use error::{ClaimContention, InvalidOption, MissingTable, UnsafeSetting};
pub use migrations::{AppliedVersion, Migration, Migrations};
pub use pool::{ConnectionLifecycle, ConnectionPool, Lifetime, PooledConnection, in_runtime};
pub use row::{TimedRecord, claimed_from_row, id_from_row, lease_from_row, record_from_row};
pub use table::{TableFacts, UnsuitableTable, columns};

/// How many held records one statement of a purge marks.
pub const MARKED_PER_STATEMENT: u32 = 10_000;

/// The name of a table or of its schema: 1 to 48 ASCII letters, digits and underscores, not
/// starting with a digit. No other text is ever inserted into a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName(String);

impl TableName {
    /// The name of the table unless another one is chosen.
    pub const DEFAULT: &'static str = "idempotency_records";
    const MAX: usize = 48;

    /// Creates a name.
    ///
    /// # Errors
    /// Fails if the text is not such a word.
    pub fn new(name: &str) -> Result<Self, InvalidTableName> {
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
    /// Fails as [`new`](Self::new), with an error that names the option.
    pub fn of_option(option: &'static str, name: &str) -> Result<Self, InvalidOption> {
        Self::new(name).map_err(|source| InvalidOption { option, source })
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
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a table or schema must be 1 to {max} ASCII letters, digits and underscores, \
     and must not start with a digit",
    max = TableName::MAX
)]
pub struct InvalidTableName;

/// The message: an error that `main` returns is shown by its `Debug` output.
impl fmt::Debug for InvalidTableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A duration in milliseconds for a statement, at most 1,000 years, so that no sum with a current
/// time overflows.
pub fn sql_millis(duration: Duration) -> i64 {
    const MAX: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;
    i64::try_from(millis(duration).min(MAX)).unwrap_or(i64::MAX)
}

/// Encodes the column `abandoned`.
pub fn abandoned_code(abandoned: Abandoned) -> i64 {
    match abandoned {
        Abandoned::Retry => 0,
        Abandoned::Hold => 1,
    }
}

/// Decodes the column `abandoned`.
pub fn abandoned_from_code(code: i64) -> Result<Abandoned, UnreadableColumn> {
    match code {
        0 => Ok(Abandoned::Retry),
        1 => Ok(Abandoned::Hold),
        _ => Err(UnreadableColumn { column: "abandoned" }),
    }
}

/// Decodes the columns `state` and `recording`.
pub fn state_from_code(
    code: i64,
    recording: Option<Vec<u8>>,
) -> Result<RecordState, UnreadableColumn> {
    match (code, recording) {
        (1, None) => Ok(RecordState::InFlight),
        (2, Some(recording)) => Ok(RecordState::Completed(recording.into())),
        (3, None) => Ok(RecordState::Held),
        (1..=3, _) => Err(UnreadableColumn { column: "recording" }),
        _ => Err(UnreadableColumn { column: "state" }),
    }
}

/// The status of a recording for the column `status`; 0 if it is unknown.
pub fn status_code(recording: &[u8]) -> i64 {
    EncodedRecording::status_of(recording).unwrap_or_default().into()
}

/// The outcome of a statement that compares the owner, from whether it changed a record.
pub fn fence(changed: bool) -> Fence {
    if changed { Fence::Passed } else { Fence::Fenced }
}

/// Decodes a column of fixed length.
pub fn fixed_bytes<const N: usize>(
    column: &'static str,
    bytes: &[u8],
) -> Result<[u8; N], UnreadableColumn> {
    bytes.try_into().map_err(|_| UnreadableColumn { column })
}

/// Decodes a column that holds a time.
pub fn timestamp(column: &'static str, millis: i64) -> Result<Timestamp, UnreadableColumn> {
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| UnreadableColumn { column })
}

/// Decodes a column that holds a duration.
pub fn duration(column: &'static str, millis: i64) -> Result<Duration, UnreadableColumn> {
    u64::try_from(millis).map(Duration::from_millis).map_err(|_| UnreadableColumn { column })
}

/// A column holds a value that no version of this library writes. Its record is neither run again
/// nor replayed.
#[derive(Debug, thiserror::Error)]
#[error("the record's column `{column}` cannot be read")]
pub struct UnreadableColumn {
    /// The name of the column.
    pub column: &'static str,
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

    #[test]
    fn no_duration_overflows_the_sum_with_a_present_time() {
        assert_eq!(sql_millis(Duration::from_secs(1)), 1_000);
        assert!(sql_millis(Duration::MAX) < i64::MAX / 2);
    }
}
