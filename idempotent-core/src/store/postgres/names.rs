//! The names and settings with which the texts of the statements are filled in.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::timeouts::LOCK_TIMEOUT;
use crate::{record_id::RecordId, store::sql::TableName};

/// Milliseconds since the Unix epoch. The value advances within a statement, so a statement that
/// needs it twice keeps it in a subquery.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A condition that limits how long a single-statement transaction waits for locks. It is evaluated
/// before the first record is read.
const BOUNDED: &str =
    "\n  AND (SELECT set_config('lock_timeout', '{lock_timeout}', true)) IS NOT NULL";

/// The table's part of the key of an advisory lock.
const LOCKED_TABLE: &str = "'{schema}\"{table}\"'::regclass::oid::bigint";

/// The record's part of the key of an advisory lock. Ids are hashes, so the key is as unlikely to
/// be a lock of the application as any other number.
pub(super) fn lock_bits(id: &RecordId) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The schema and the name of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// `None` means the first schema in the server's `search_path`.
    pub(super) schema: Option<TableName>,
    pub(super) table: TableName,
    /// Whether each statement has to limit its own waits, because its session lacks the store's
    /// settings.
    pub(super) bounded: bool,
}

impl Names {
    /// Fills in the names, which [`TableName`] has validated, and the time.
    pub(super) fn fill(&self, text: &str) -> String {
        let schema = self
            .schema
            .as_ref()
            .map(|schema| format!("\"{}\".", schema.as_str()))
            .unwrap_or_default();
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
            .replace("{schema}", &schema)
            .replace("{bounded}", &bounded);
        self.table.fill(&text, NOW)
    }

    /// The SQL expression for the key of the advisory lock on a record. Tables of the same name in
    /// different schemas have different locks, whether the schema is named or found in the
    /// `search_path`.
    pub(super) fn lock_key(&self, id: &RecordId) -> String {
        self.fill(&format!("{} # {LOCKED_TABLE}", lock_bits(id)))
    }

    pub(super) fn filled(&self, text: &str) -> SqlStr {
        // Shared, so that clones do not copy the text.
        AssertSqlSafe(std::sync::Arc::<str>::from(self.fill(text))).into_sql_str()
    }
}
