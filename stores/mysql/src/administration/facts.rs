//! What the server tells of the table.

use idempotent_core::{ShortText, clock::Timestamp, protocol::StoreFacts};
use sqlx::{Row, mysql::MySqlRow};

/// Decodes the row of `sql/measure.sql`.
pub(super) fn facts_from_rows(
    rows: &[MySqlRow],
) -> Result<StoreFacts, Box<dyn std::error::Error + Send + Sync>> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let number = |column| {
        let number: i64 = row.try_get(column)?;
        Ok::<_, sqlx::Error>(u64::try_from(number).unwrap_or(0))
    };
    let version: String = row.try_get("version")?;
    let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    let server = ShortText::truncated(&format!("{name} {version}"));
    let facts = StoreFacts::new(Timestamp::from_millis(number("now")?), server)
        .with_size("table", number("table_bytes")?)
        .with_size("indexes", number("index_bytes")?)
        .with_size("audit log", number("log_bytes")?);
    Ok(if matches!(number("flush")?, 1 | 3) {
        facts
    } else {
        facts.with_finding(
            "`innodb_flush_log_at_trx_commit` is not 1: a crash of the machine can lose records, \
             and the handlers of their keys then run again.",
            "Set `innodb_flush_log_at_trx_commit = 1`.",
        )
    })
}
