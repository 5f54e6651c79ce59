//! Verifies the privileges of the role.

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use crate::{engine::Engine, error::NAME, migrate::sessions, server, sql::names::Names};
use idempotent_core::{RecordId, StoreError};
use idempotent_sql::TableName;

const PRIVILEGES: &str = include_str!("../sql/privileges.sql");
/// The schemas in the server's `search_path`, including those that the role may not use.
const SEARCHED: &str = "string_to_array(replace(replace(replace(\
    current_setting('search_path'), ' ', ''), '\"', ''), '$user', current_user), ',')";

/// Checks the server's settings, the existence of the table, the role's privileges on it, and that
/// all connections find it.
pub(crate) async fn verify(engine: &Engine, operation: &'static str) -> Result<(), StoreError> {
    let to_store_error = |error| engine.store_error(operation, error);
    let mut connection = engine.pools.steps.get_verified().await.map_err(to_store_error)?;
    server::check(&mut connection, operation).await?;
    let missing_privilege =
        missing_privilege(&mut connection, engine.names()).await.map_err(to_store_error)?;
    connection.give_back();
    match missing_privilege {
        Some(missing_privilege) => Err(StoreError::permanent(NAME, operation, missing_privilege)),
        // This read fails with an error that says so if there is no table.
        None => {
            let statements = engine.statements(operation).await?;
            engine.read(operation, statements.steps.read(&RecordId::from_bytes([0; 32]))).await?;
            sessions::verify(engine, operation).await
        }
    }
}

async fn missing_privilege(
    connection: &mut PgConnection,
    names: &Names,
) -> Result<Option<MissingPrivilege>, sqlx::Error> {
    let searched = names.schema.as_ref().map(|schema| format!("ARRAY['{}']", schema.as_str()));
    let text = PRIVILEGES.replace("{searched}", searched.as_deref().unwrap_or(SEARCHED));
    let rows = sqlx::raw_sql(AssertSqlSafe(names.fill(&text))).fetch_all(connection).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let with_problem = |problem| {
        Ok(Some(MissingPrivilege {
            role: row.try_get("role")?,
            table: names.table.clone(),
            problem,
        }))
    };
    privilege_problem(row)?.map_or(Ok(None), with_problem)
}

fn privilege_problem(row: &PgRow) -> Result<Option<PrivilegeProblem>, sqlx::Error> {
    let missing: Vec<String> = row.try_get("missing")?;
    let missing_on_log: Vec<String> = row.try_get("missing_on_log")?;
    Ok(if !row.try_get("usable")? {
        Some(PrivilegeProblem::Schema(row.try_get("schema")?))
    } else if !missing.is_empty() {
        Some(PrivilegeProblem::Table(missing.join(", ")))
    } else if !missing_on_log.is_empty() {
        Some(PrivilegeProblem::Log(missing_on_log.join(", ")))
    } else if row.try_get("filtered")? {
        Some(PrivilegeProblem::RowSecurity)
    } else if row.try_get("log_filtered")? {
        Some(PrivilegeProblem::LogRowSecurity)
    } else {
        None
    })
}

/// A privilege that the role lacks.
#[derive(Debug, thiserror::Error)]
#[error("the role `{role}` cannot use the table `{}`: {problem}", table.as_str())]
struct MissingPrivilege {
    role: String,
    table: TableName,
    problem: PrivilegeProblem,
}

/// What the role lacks.
#[derive(Debug, thiserror::Error)]
enum PrivilegeProblem {
    #[error("grant it USAGE on the schema `{0}`")]
    Schema(String),
    #[error("grant it {0} on the table")]
    Table(String),
    #[error("grant it {0} on the log of operators' decisions, the table with the suffix `_audit`")]
    Log(String),
    #[error(
        "row-level security hides rows from it; give it BYPASSRLS, or disable row-level security"
    )]
    RowSecurity,
    #[error(
        "row-level security hides rows of the log of operators' decisions, the table with the \
         suffix `_audit`, from it; give it BYPASSRLS, or disable row-level security there"
    )]
    LogRowSecurity,
}
