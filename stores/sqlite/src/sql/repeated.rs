//! A statement that is executed for many records in one call to SQLite's thread.
//!
//! SQLite's thread sends a message for each statement and each row, and each message can wake its
//! receiver. One statement for all records is one message, but shows only how many records have
//! changed. If some have not, one statement for each record shows which.

use std::iter;

use sqlx::{SqlStr, SqliteConnection};

use crate::sql::query::{bound, changes};
use idempotent_sql::statement::{Value, shared_text};

/// The most records in one call, as a power of two.
const MAX_COPIES: u32 = 6;

/// A statement in texts for 1, 2, 4, … records, so that few texts are prepared.
pub(crate) struct RepeatedStatement {
    /// One statement for 2ⁿ records, by n.
    joined: Vec<SqlStr>,
    /// 2ⁿ copies of the statement, by n.
    copies: Vec<SqlStr>,
    /// The number of each parameter of one copy, in the order of the text. The parameters
    /// themselves have no numbers: SQLite allocates as many as the highest number says.
    parameters: Vec<usize>,
}

impl RepeatedStatement {
    /// Prepares a statement whose first line that begins with `WHERE` ends its list of tables;
    /// `separator` is what another table in that list needs before its name.
    pub(crate) fn new(text: &str, separator: &str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with("--"));
        let text = lines().collect::<Vec<_>>().join("\n");
        let mut parts = text.split('?');
        let mut copy = parts.next().unwrap_or_default().to_owned();
        let mut joined = copy.clone();
        let mut parameters = Vec::new();
        for part in parts {
            let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            parameters.extend(number.parse::<usize>());
            copy.extend(["?", rest]);
            joined.extend(["v.column", number, rest]);
        }
        let count = parameters.iter().copied().max().unwrap_or_default();
        let joined = |power| {
            let row = format!("({})", vec!["?"; count].join(", "));
            let rows = vec![row; 1_usize << power].join(", ");
            shared_text(joined.replacen(
                "\nWHERE",
                &format!("\n{separator}(VALUES {rows}) AS v\nWHERE"),
                1,
            ))
        };
        let copies = |power| shared_text(vec![copy.clone(); 1_usize << power].join(";\n"));
        Self {
            joined: (0..=MAX_COPIES).map(joined).collect(),
            copies: (0..=MAX_COPIES).map(copies).collect(),
            parameters,
        }
    }

    /// Executes the statement for all records together; returns whether it has changed all of them.
    pub(crate) async fn changes_all(
        &self,
        connection: &mut SqliteConnection,
        records: &[Vec<Value<'_>>],
    ) -> Result<bool, sqlx::Error> {
        let mut changed = 0;
        for (text, these) in parts(&self.joined, records) {
            let done = bound(text, these.iter().flatten().cloned()).execute(&mut *connection);
            changed += done.await?.rows_affected();
        }
        Ok(usize::try_from(changed) == Ok(records.len()))
    }

    /// Executes the statement for each record; returns for each whether it has changed a record.
    pub(crate) async fn execute_each(
        &self,
        connection: &mut SqliteConnection,
        records: &[Vec<Value<'_>>],
    ) -> Result<Vec<bool>, sqlx::Error> {
        let mut changed = Vec::with_capacity(records.len());
        for (text, these) in parts(&self.copies, records) {
            let values = these.iter().flat_map(|values| {
                self.parameters.iter().filter_map(|number| values.get(number.checked_sub(1)?))
            });
            changes(bound(text, values.cloned()), connection, &mut changed).await?;
        }
        Ok(changed.into_iter().map(|rows| rows != 0).collect())
    }
}

/// Splits records into parts of 2ⁿ, each with the text for as many.
fn parts<'a, R>(
    texts: &'a [SqlStr],
    mut records: &'a [R],
) -> impl Iterator<Item = (&'a SqlStr, &'a [R])> {
    iter::from_fn(move || {
        let power = records.len().checked_ilog2()?.min(MAX_COPIES);
        let text = texts.get(usize::try_from(power).ok()?)?;
        let (these, rest) = records.split_at_checked(1 << power)?;
        records = rest;
        Some((text, these))
    })
}
