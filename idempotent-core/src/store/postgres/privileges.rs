//! Whether the role may do what the statements do.

use std::{error::Error, fmt};

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{NAME, PostgresStore, connect::check, statements::Names};
use crate::{error::StoreError, record_id::RecordId, store::sql::TableName};

const PRIVILEGES: &str = include_str!("../../sql/postgres/privileges.sql");
/// The schemas that the server searches, with those that the role may not use.
const SEARCHED: &str = "string_to_array(replace(replace(replace(current_setting('search_path'), ' ', ''), '\"', ''), \
                        '$user', current_user), ',')";

impl PostgresStore {
    /// Checks the server's settings, that the table is there, and the role's privileges on it.
    pub(super) async fn verify(&self, operation: &'static str) -> Result<(), StoreError> {
        let failed = |error| self.failed(operation, error);
        let mut connection = self.pools.steps.live().await.map_err(failed)?;
        check(&mut connection, operation).await?;
        let lacking = lacking(&mut connection, &self.statements.names).await.map_err(failed)?;
        connection.give_back();
        match lacking {
            Some(lacking) => Err(StoreError::permanent(NAME, operation, lacking)),
            // It says so if there is no table.
            None => self.read(operation, self.statements.read(&RecordId::from_bytes([0; 32]))).await.map(drop),
        }
    }
}

async fn lacking(connection: &mut PgConnection, names: &Names) -> Result<Option<Lacking>, sqlx::Error> {
    let searched = names.schema.as_ref().map(|schema| format!("ARRAY['{}']", schema.as_str()));
    let text = PRIVILEGES.replace("{searched}", searched.as_deref().unwrap_or(SEARCHED));
    let rows = sqlx::raw_sql(AssertSqlSafe(names.fill(&text))).fetch_all(connection).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let lacking = |what| Ok(Some(Lacking { role: row.try_get("role")?, table: names.table.clone(), what }));
    what_is_lacking(row)?.map_or(Ok(None), lacking)
}

fn what_is_lacking(row: &PgRow) -> Result<Option<What>, sqlx::Error> {
    let missing: Vec<String> = row.try_get("missing")?;
    Ok(if !row.try_get("usable")? {
        Some(What::Schema(row.try_get("schema")?))
    } else if !missing.is_empty() {
        Some(What::Table(missing.join(", ")))
    } else if row.try_get("filtered")? {
        Some(What::AllRows)
    } else {
        None
    })
}

/// The role may not do what the store has to.
#[derive(Debug)]
struct Lacking {
    role: String,
    table: TableName,
    what: What,
}

#[derive(Debug)]
enum What {
    /// USAGE on it.
    Schema(String),
    /// These privileges.
    Table(String),
    /// Row-level security applies.
    AllRows,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (role, table) = (&self.role, self.table.as_str());
        match &self.what {
            What::Schema(schema) => {
                write!(f, "the role `{role}` lacks the privilege USAGE on the schema `{schema}` of the table `{table}`")
            }
            What::Table(missing) => {
                write!(f, "the role `{role}` lacks the privileges on the table `{table}`: {missing}")
            }
            What::AllRows => write!(
                f,
                "row-level security hides rows of the table `{table}` from the role `{role}`; give the role BYPASSRLS, or disable it"
            ),
        }
    }
}

impl Error for Lacking {}
