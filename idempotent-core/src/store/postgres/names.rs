//! The names and settings with which the texts of the statements are filled in.

use sha2::{Digest as _, Sha256};
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
        let text = text.replace("{schema}", &schema).replace("{bounded}", &bounded);
        self.table.fill(&text, NOW)
    }

    /// The key of the advisory lock on a record: 64 bits of a hash of the table's name and the
    /// record's id, so that it is as unlikely to be a lock of the application, or of another table,
    /// as any other number.
    pub(super) fn lock_key(&self, id: &RecordId) -> i64 {
        let mut hasher = Sha256::new_with_prefix("idem/lock/1");
        let schema = self.schema.as_ref().map_or("", TableName::as_str);
        for name in [schema, self.table.as_str()] {
            hasher.update(name);
            hasher.update([0]);
        }
        hasher.update(id.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hasher.finalize());
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    pub(super) fn filled(&self, text: &str) -> SqlStr {
        // Shared, so that clones do not copy the text.
        AssertSqlSafe(std::sync::Arc::<str>::from(self.fill(text))).into_sql_str()
    }
}
