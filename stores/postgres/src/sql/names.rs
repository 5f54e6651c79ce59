//! The names and settings with which the texts of the statements are filled in.

use sqlx::SqlStr;

use crate::server::timeouts::LOCK_TIMEOUT;
use idempotent_core::RecordId;
use idempotent_sql::{Dialect, TableName, statement::shared_text};

const DIALECT: Dialect = Dialect {
    // The value advances within a statement, so a statement that needs the same one twice keeps it
    // in a subquery.
    // `extract` would calculate with decimal numbers, which takes longer.
    now: "(date_part('epoch', clock_timestamp()) * 1000)::bigint",
    appended: "right(history || {letter} || lpad(to_hex({now}), 11, '0'), {characters})",
};

/// A condition that limits how long a single-statement transaction waits for locks. It is evaluated
/// before the first record is read.
const BOUNDED: &str =
    "\n  AND (SELECT set_config('lock_timeout', '{lock_timeout}', true)) IS NOT NULL";

/// The table's part of the key of an advisory lock.
const LOCKED_TABLE: &str = "'{quoted_schema}\"{table}\"'::regclass::oid::bigint";

/// The record's part of the key of an advisory lock. Ids are hashes, so the key is as unlikely to
/// be a lock of the application as any other number.
pub(crate) fn lock_bits(id: &RecordId) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The name of a schema, which may contain any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaName(String);

impl SchemaName {
    /// The name of a schema that was found on the server; `None` if it cannot be part of a
    /// statement, in which parameters and placeholders are replaced.
    pub(crate) fn found(name: String) -> Option<Self> {
        let parameter = name
            .split('$')
            .skip(1)
            .any(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
        (!parameter && !name.contains(['{', '}'])).then_some(Self(name))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as an identifier in SQL, with the dot that follows.
    fn prefix(&self) -> String {
        format!("\"{}\".", self.0.replace('"', "\"\""))
    }
}

impl From<TableName> for SchemaName {
    fn from(name: TableName) -> Self {
        Self(name.as_str().to_owned())
    }
}

/// The schema and the name of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// `None` means the first schema in the server's `search_path` that has the table. It is
    /// looked up [once](super::table::Table).
    pub(crate) schema: Option<SchemaName>,
    pub(crate) table: TableName,
    /// Whether each statement has to limit its own waits, because its session lacks the store's
    /// settings.
    pub(crate) bounded: bool,
}

impl Names {
    /// Fills in the names, which [`TableName`] has validated, and the time.
    pub(crate) fn fill(&self, text: &str) -> String {
        let schema = self.schema.as_ref().map(SchemaName::prefix).unwrap_or_default();
        // Header comments are removed, because parameters that are written as literals would be
        // replaced in them too.
        let text =
            text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        let bounded = if self.bounded {
            BOUNDED.replace("{lock_timeout}", LOCK_TIMEOUT)
        } else {
            String::new()
        };
        let text = text
            .replace("{locked_table}", LOCKED_TABLE)
            .replace("{quoted_schema}", &schema.replace('\'', "''"))
            .replace("{schema}", &schema)
            .replace("{bounded}", &bounded);
        self.table.fill(&text, &DIALECT)
    }

    /// The SQL expression for the key of the advisory lock on a record. Tables of the same name in
    /// different schemas have different locks, whether the schema is named or found in the
    /// `search_path`.
    pub(crate) fn lock_key(&self, id: &RecordId) -> String {
        self.fill(&format!("{} # {LOCKED_TABLE}", lock_bits(id)))
    }

    pub(crate) fn filled(&self, text: &str) -> SqlStr {
        shared_text(self.fill(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_schema_is_quoted() {
        let schema = SchemaName::found("it's \"mine\"".into());
        let names = Names { schema, ..Names::default() };
        let text = names.fill("FROM {schema}\"{table}\" WHERE {locked_table}");
        assert_eq!(
            text,
            "FROM \"it's \"\"mine\"\"\".\"idempotency_records\" WHERE \
             '\"it''s \"\"mine\"\"\".\"idempotency_records\"'::regclass::oid::bigint"
        );
        assert!(SchemaName::found("cash$flow".into()).is_some());
        for name in ["cash$1", "{table}"] {
            assert_eq!(SchemaName::found(name.into()), None);
        }
    }
}
