//! Verifies that the table is one that the statements can use.

use sqlx::{Row as _, mysql::MySqlRow};

use crate::{
    engine::Engine, error::NAME, server::timeouts::RESPONSE_TIMEOUT, sql::positional::message,
};
use idempotent_core::StoreError;
use idempotent_sql::{LogFacts, MissingTable, TableFacts, UnsafeSetting, audit_columns, columns};

const TABLE: &str = include_str!("../sql/table.sql");
/// The only engine with transactions and locks of records.
const ENGINE: &str = "InnoDB";

/// Refuses a table without the constraint on which claims depend, with columns that the statements
/// lack or leave empty, or of an engine without transactions.
pub(super) async fn verify(engine: &Engine, operation: &'static str) -> Result<(), StoreError> {
    let to_store_error = |error| engine.store_error(operation, error);
    let names = &engine.statements.names;
    let text = TABLE.replace("{columns}", &columns()).replace("{audit}", &audit_columns());
    let text = names.fill(&text);
    let mut connection = engine.pools.steps.get_verified().await.map_err(to_store_error)?;
    let row = message(text).fetch_one(&mut *connection);
    let row = engine.pools.health.exchange(RESPONSE_TIMEOUT, row).await;
    engine.put_back(connection, row.as_ref().err());
    let row = row.map_err(to_store_error)?;
    let present: String = row.try_get("present").map_err(to_store_error)?;
    if present.is_empty() {
        let missing = MissingTable { operation, table: names.table.clone(), source: None };
        return Err(StoreError::permanent(NAME, operation, missing));
    }
    facts(&row, &present).map_err(to_store_error)?.verify(NAME, operation, &names.table)?;
    for (column, setting) in
        [("engine", "ENGINE of the table"), ("log_engine", "ENGINE of the log")]
    {
        let actual: Option<String> = row.try_get(column).map_err(to_store_error)?;
        if let Some(actual) = actual.filter(|actual| actual != ENGINE) {
            let setting = UnsafeSetting { database: "MySQL", setting, actual, required: ENGINE };
            return Err(StoreError::permanent(NAME, operation, setting));
        }
    }
    Ok(())
}

fn facts(row: &MySqlRow, present: &str) -> Result<TableFacts, sqlx::Error> {
    let log_unfilled = row.try_get("log_unfilled")?;
    let log: Option<String> = row.try_get("log_present")?;
    Ok(TableFacts {
        keyed: row.try_get::<i64, _>("keyed")? != 0,
        unfilled: row.try_get("unfilled")?,
        lacking: lacking(&columns(), present),
        log: log.map(|present| LogFacts {
            unfilled: log_unfilled,
            lacking: lacking(&audit_columns(), &present),
        }),
    })
}

/// Which of the columns, given as literals, are not present.
fn lacking(literals: &str, present: &str) -> String {
    let present: Vec<_> = present.split(", ").collect();
    let columns = literals.split(", ").map(|literal| literal.trim_matches('\''));
    columns.filter(|column| !present.contains(column)).collect::<Vec<_>>().join(", ")
}
