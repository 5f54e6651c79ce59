//! The table of the records, which is found once.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr as _, SqlStr, postgres::PgRow};
use tokio::sync::OnceCell;

use crate::sql::{
    names::{Names, SchemaName},
    statements::{Statements, Texts},
};

/// Finds the schema of the table by the `search_path`. Temporary tables, which a session would find
/// first, are not in the schemas of the path.
const SCHEMA: &str = r#"
    SELECT n.nspname::text AS schema
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = '"{table}"'::regclass
      AND n.nspname = ANY (current_schemas(false))"#;

/// The table of a store. All clones of the store use the same.
///
/// If the application has not set a schema, the first call looks the table up by the `search_path`.
/// From then on every statement names the schema, so that neither a handler that sets `search_path`
/// nor a temporary table directs a statement to another table.
pub(crate) struct Table {
    /// The names that the application has set.
    pub(crate) names: Names,
    texts: Texts,
    /// The statements for the table, once its schema is known.
    pub(crate) statements: OnceCell<Arc<Statements>>,
}

impl Table {
    pub(crate) fn new(names: Names, texts: Texts) -> Self {
        let found =
            names.schema.is_some().then(|| Arc::new(Statements::new(names.clone(), &texts)));
        Self { names, texts, statements: OnceCell::new_with(found) }
    }

    /// The statement that looks the table up.
    pub(crate) fn look_up(&self) -> SqlStr {
        AssertSqlSafe(self.names.fill(SCHEMA)).into_sql_str()
    }

    /// The statements for the table that [`look_up`](Self::look_up) has found.
    pub(crate) fn statements_for(&self, found: &[PgRow]) -> Result<Arc<Statements>, sqlx::Error> {
        let name = found.first().map(|row| row.try_get("schema")).transpose()?;
        let schema = name.and_then(SchemaName::found);
        let schema = schema.ok_or_else(|| sqlx::Error::Configuration(UnusableSchema.into()))?;
        let names = Names { schema: Some(schema), ..self.names.clone() };
        Ok(Arc::new(Statements::new(names, &self.texts)))
    }
}

/// The table is in a schema that no statement can name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the `search_path` finds the table in a temporary schema, or in one whose name contains a \
     brace, or `$` before a digit; set another one with `PostgresOptions::schema`"
)]
struct UnusableSchema;
