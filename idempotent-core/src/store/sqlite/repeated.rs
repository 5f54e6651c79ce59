//! A statement that is executed for many records in one call to SQLite's thread.

use sqlx::{Row as _, SqlStr, SqliteConnection};

use super::statement::{Value, bound, shared};

/// The most copies in one call, as a power of two.
const MAX_COPIES: u32 = 6;

/// A statement in texts of 1, 2, 4, … copies, so that few texts are prepared.
pub(super) struct RepeatedStatement {
    /// The text of 2ⁿ copies, by n. Each copy returns its number if it has changed a record.
    texts: Vec<SqlStr>,
    /// The number of each parameter of one copy, in the order of the text. The parameters
    /// themselves have no numbers: SQLite allocates as many as the highest number says.
    parameters: Vec<usize>,
}

impl RepeatedStatement {
    pub(super) fn new(text: &str) -> Self {
        let text: Vec<_> = text.lines().filter(|line| !line.starts_with("--")).collect();
        let text = text.join("\n");
        let mut parts = text.split('?');
        let mut copy = parts.next().unwrap_or_default().to_owned();
        let mut parameters = Vec::new();
        for part in parts {
            let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            parameters.extend(number.parse::<usize>());
            copy.push('?');
            copy.push_str(rest);
        }
        let copies = |power| {
            let copies = (0..1_u32 << power).map(|number| format!("{copy}\nRETURNING {number}"));
            shared(copies.collect::<Vec<_>>().join(";\n"))
        };
        Self { texts: (0..=MAX_COPIES).map(copies).collect(), parameters }
    }

    /// Executes the statement for each record, with the values of its parameters; returns for each
    /// whether it has changed a record.
    pub(super) async fn execute<const N: usize>(
        &self,
        connection: &mut SqliteConnection,
        mut records: &[[Value<'_>; N]],
    ) -> Result<Vec<bool>, sqlx::Error> {
        let mut changed = Vec::with_capacity(records.len());
        while let Some(power) = records.len().checked_ilog2() {
            let power = power.min(MAX_COPIES);
            let Some((text, (these, rest))) = usize::try_from(power)
                .ok()
                .and_then(|power| self.texts.get(power))
                .zip(records.split_at_checked(1 << power))
            else {
                break;
            };
            let values = these.iter().flat_map(|values| {
                self.parameters.iter().filter_map(|number| values.get(number.checked_sub(1)?))
            });
            let rows = bound(text, values.cloned()).fetch_all(&mut *connection).await?;
            let first = changed.len();
            changed.resize(first + these.len(), false);
            for row in rows {
                let number: u32 = row.try_get(0)?;
                if let Some(one) =
                    usize::try_from(number).ok().and_then(|number| changed.get_mut(first + number))
                {
                    *one = true;
                }
            }
            records = rest;
        }
        Ok(changed)
    }
}
