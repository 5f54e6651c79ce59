//! What the server tells of the table.

use idempotent_core::{ShortText, clock::Timestamp, protocol::StoreFacts};
use sqlx::{Row, postgres::PgRow};

/// Below this number, dead rows do not matter.
const FEW: u64 = 10_000;

/// Decodes the row of `sql/measure.sql`.
pub(super) fn facts_from_rows(
    rows: &[PgRow],
) -> Result<StoreFacts, Box<dyn std::error::Error + Send + Sync>> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let number = |column| {
        let number: i64 = row.try_get(column)?;
        Ok::<_, sqlx::Error>(u64::try_from(number).unwrap_or(0))
    };
    let version: String = row.try_get("version")?;
    let server = ShortText::truncated(&format!("PostgreSQL {version}"));
    let mut facts = StoreFacts::new(Timestamp::from_millis(number("now")?), server)
        .with_size("table", number("table_bytes")?)
        .with_size("indexes", number("index_bytes")?)
        .with_size("audit log", number("log_bytes")?);
    let (live, dead) = (number("live")?, number("dead")?);
    if dead > FEW && dead > live {
        facts = facts.with_finding(
            format!("The table has about {dead} dead rows beside {live} live ones."),
            "Let autovacuum run more often: set `autovacuum_vacuum_scale_factor` of the table to \
             0.02, and end transactions that stay open for long.",
        );
    }
    if number("autovacuum")? == 0 {
        facts = facts.with_finding(
            "`autovacuum` is off, so the table grows with each claim.",
            "Set `autovacuum = on`.",
        );
    }
    if number("fsync")? == 0 {
        facts = facts.with_finding(
            "`fsync` is off: a crash of the machine can lose or damage records, and the handlers \
             of their keys then run again.",
            "Set `fsync = on`.",
        );
    }
    Ok(facts)
}
