//! Verifies that the table is one that the statements can use.

use sqlx::{Row as _, sqlite::SqliteRow};

use crate::{
    connect::connections::{Access, return_connection},
    engine::Engine,
    error::NAME,
    sql::filled,
};
use idempotent_core::StoreError;
use idempotent_sql::{LogFacts, MissingTable, TableFacts, audit_columns, columns};

const TABLE: &str = include_str!("../sql/table.sql");

/// Refuses a table without the constraint on which claims depend, or with columns that the
/// statements lack or leave empty.
pub(crate) async fn verify_table(
    engine: &Engine,
    operation: &'static str,
) -> Result<(), StoreError> {
    let to_store_error = |error| engine.store_error(operation, error);
    let table = &engine.statements.table;
    let text = TABLE.replace("{columns}", &columns()).replace("{audit}", &audit_columns());
    let text = filled(table, &text);
    let mut connection = engine.connection(operation, Access::Read).await?;
    let row = sqlx::query(text).fetch_one(&mut *connection).await;
    let row = return_connection(connection, row).map_err(to_store_error)?;
    let (present, facts) = facts(&row).map_err(to_store_error)?;
    if !present {
        let missing = MissingTable { operation, table: table.clone(), source: None };
        return Err(StoreError::permanent(NAME, operation, missing));
    }
    facts.verify(NAME, operation, table)
}

/// Whether the table exists, and what is known of it.
fn facts(row: &SqliteRow) -> Result<(bool, TableFacts), sqlx::Error> {
    let facts = TableFacts {
        keyed: row.try_get("keyed")?,
        unfilled: row.try_get("unfilled")?,
        lacking: row.try_get("lacking")?,
        log: log_facts(row)?,
    };
    Ok((row.try_get("present")?, facts))
}

fn log_facts(row: &SqliteRow) -> Result<Option<LogFacts>, sqlx::Error> {
    let Some(lacking) = row.try_get("log_lacking")? else { return Ok(None) };
    Ok(Some(LogFacts { lacking, unfilled: row.try_get("log_unfilled")? }))
}
