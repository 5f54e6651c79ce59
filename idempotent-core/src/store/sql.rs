//! What the stores in SQL databases have in common.

use std::{fmt, time::Duration};

use crate::{
    clock::{Timestamp, millis},
    policy::Abandoned,
    protocol::Fence,
    record::RecordState,
};

mod connections;
mod error;
#[cfg(feature = "postgres")]
mod open;
mod row;
mod versions;

#[cfg(feature = "postgres")]
pub(crate) use connections::Care;
#[cfg(feature = "sqlite")]
pub(crate) use connections::in_runtime;
pub(crate) use connections::{Connections, Lent, Lifetime};
pub(crate) use error::{Contended, MissingTable, UnsafeSetting};
#[cfg(feature = "postgres")]
pub(crate) use open::{NotOurs, Open, in_step, out_of_step};
pub(crate) use row::{Read, lease, read};
pub(crate) use versions::{Applied, Migration, NotMigrated, missing};

/// The name of a table, or of the schema it is in: 1 to 48 ASCII letters, digits and underscores, of which the first is no digit. Nothing else is ever put
/// into a statement's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName(String);

impl TableName {
    pub(crate) const DEFAULT: &'static str = "idempotency_records";
    const MAX: usize = 48;

    pub(crate) fn new(name: &str) -> Result<Self, InvalidTableName> {
        let word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let starts = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if word && starts && name.len() <= Self::MAX { Ok(Self(name.to_owned())) } else { Err(InvalidTableName) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Fills a statement's `{table}` and `{now}`.
    pub(crate) fn fill(&self, statement: &str, now: &str) -> String {
        statement.replace("{table}", &self.0).replace("{now}", now)
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

/// A table or schema cannot have this name: it must be 1 to 48 ASCII letters, digits and underscores, and must not start with a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTableName;

impl fmt::Display for InvalidTableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = TableName::MAX;
        write!(
            f,
            "the name of a table or schema is 1 to {max} ASCII letters, digits and underscores, and starts with no digit"
        )
    }
}

impl std::error::Error for InvalidTableName {}

/// A duration as the statements take it. It is cut to 1,000 years, so that no sum with a present time overflows.
pub(crate) fn sql_millis(duration: Duration) -> i64 {
    const MAX: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;
    i64::try_from(millis(duration).min(MAX)).unwrap_or(i64::MAX)
}

/// The column `abandoned`.
pub(crate) fn abandoned_code(abandoned: Abandoned) -> i64 {
    match abandoned {
        Abandoned::Retry => 0,
        Abandoned::Hold => 1,
    }
}

/// The column `abandoned`, read.
pub(crate) fn abandoned(code: i64) -> Result<Abandoned, Unreadable> {
    match code {
        0 => Ok(Abandoned::Retry),
        1 => Ok(Abandoned::Hold),
        _ => Err(Unreadable { column: "abandoned" }),
    }
}

/// The columns `state` and `recording`, read.
pub(crate) fn state(code: i64, recording: Option<Vec<u8>>) -> Result<RecordState, Unreadable> {
    match (code, recording) {
        (1, None) => Ok(RecordState::InFlight),
        (2, Some(recording)) => Ok(RecordState::Completed(recording.into())),
        (3, None) => Ok(RecordState::Held),
        (1..=3, _) => Err(Unreadable { column: "recording" }),
        _ => Err(Unreadable { column: "state" }),
    }
}

/// What it means to the caller that a statement that names the owner changed a record or not.
pub(crate) fn fence(changed: bool) -> Fence {
    if changed { Fence::Passed } else { Fence::Fenced }
}

/// A column of fixed length, read.
pub(crate) fn fixed<const N: usize>(column: &'static str, bytes: &[u8]) -> Result<[u8; N], Unreadable> {
    bytes.try_into().map_err(|_| Unreadable { column })
}

/// A column of time, read.
pub(crate) fn time(column: &'static str, millis: i64) -> Result<Timestamp, Unreadable> {
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| Unreadable { column })
}

/// A column of a duration, read.
pub(crate) fn length(column: &'static str, millis: i64) -> Result<Duration, Unreadable> {
    u64::try_from(millis).map(Duration::from_millis).map_err(|_| Unreadable { column })
}

/// A row holds what no version of this library writes. It is neither run again nor replayed.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) column: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record's column `{}` cannot be read", self.column)
    }
}

impl std::error::Error for Unreadable {}

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
