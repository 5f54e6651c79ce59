//! Verifies that the table is one that the statements can use.

use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

use crate::{engine::Engine, error::NAME};
use idempotent_core::StoreError;
use idempotent_sql::{LogFacts, TableFacts, audit_columns, columns};

const TABLE: &str = include_str!("../sql/table.sql");

/// Refuses a table without the constraint on which claims depend, or with columns that the
/// statements lack or leave empty.
pub(crate) async fn verify(engine: &Engine, operation: &'static str) -> Result<(), StoreError> {
    let to_store_error = |error| engine.store_error(operation, error);
    let text = TABLE
        .replace("{columns}", &format!("ARRAY[{}]", columns()))
        .replace("{audit}", &format!("ARRAY[{}]", audit_columns()));
    let names = &engine.statements(operation).await?.names;
    let text = AssertSqlSafe(names.fill(&text));
    let mut connection = engine.pools.steps.get_verified().await.map_err(to_store_error)?;
    let row = sqlx::raw_sql(text).fetch_one(&mut *connection).await;
    engine.put_back(connection, row.as_ref());
    let facts = row.and_then(|row| facts(&row)).map_err(to_store_error)?;
    facts.verify(NAME, operation, &names.table)
}

fn facts(row: &PgRow) -> Result<TableFacts, sqlx::Error> {
    Ok(TableFacts {
        keyed: row.try_get("keyed")?,
        unfilled: row.try_get::<Vec<String>, _>("unfilled")?.join(", "),
        lacking: row.try_get::<Vec<String>, _>("lacking")?.join(", "),
        log: log_facts(row)?,
    })
}

fn log_facts(row: &PgRow) -> Result<Option<LogFacts>, sqlx::Error> {
    let Some(lacking) = row.try_get::<Option<Vec<String>>, _>("log_lacking")? else {
        return Ok(None);
    };
    let unfilled = row.try_get::<Vec<String>, _>("log_unfilled")?.join(", ");
    Ok(Some(LogFacts { unfilled, lacking: lacking.join(", ") }))
}
