//! Changes that add an entry to the log of operators' decisions in the same statement.

use idempotent_core::protocol::AuditEntry;
use idempotent_sql::{
    statement::{Statement, Value},
    steps::audit_values,
};

/// The number of the parameters of an entry in `log.sql`.
const ENTRY: usize = 6;

/// The text of `log.sql` with this change, whose parameters follow those of the entry.
pub(crate) fn logging(log: &str, change: &str) -> String {
    let mut parts = change.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let number = number.parse::<usize>().map(|number| (number + ENTRY).to_string());
        text.extend(["$", &number.unwrap_or_default(), rest]);
    }
    log.replace("{change}", &text)
}

/// A statement of such a text, from that of the change alone.
pub(crate) fn logged<'a>(
    text: &'a sqlx::SqlStr,
    change: Statement<'a>,
    entry: &'a AuditEntry,
) -> Statement<'a> {
    let mut values: Vec<Value<'a>> = audit_values(entry);
    values.extend(change.values);
    Statement { text, values, ..change }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_change_follow_those_of_the_entry() {
        let log = "WITH changed AS ({change}) SELECT $1, $6";
        assert_eq!(
            logging(log, "DELETE WHERE a = $1 AND b = $12"),
            "WITH changed AS (DELETE WHERE a = $7 AND b = $18) SELECT $1, $6"
        );
    }
}
