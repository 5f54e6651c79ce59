//! Finds the table of the records, once.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr as _};
use tokio::sync::OnceCell;

use crate::{
    engine::Resend,
    sql::names::{Names, SchemaName},
    sql::statement::Statement,
    sql::statements::{Statements, Texts},
    store::PostgresStore,
};
use idempotent_core::StoreError;

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
#[derive(Default)]
pub(crate) struct Table {
    /// The names that the application has set.
    pub(crate) names: Names,
    texts: Arc<Texts>,
    statements: OnceCell<Arc<Statements>>,
}

impl Table {
    pub(crate) fn new(names: Names, texts: Arc<Texts>) -> Self {
        let found =
            names.schema.is_some().then(|| Arc::new(Statements::new(names.clone(), &texts)));
        Self { names, texts, statements: OnceCell::new_with(found) }
    }

    /// The same table under other names.
    pub(crate) fn with_names(&self, names: Names) -> Self {
        Self::new(names, self.texts.clone())
    }

    fn statements_in(&self, schema: SchemaName) -> Statements {
        Statements::new(Names { schema: Some(schema), ..self.names.clone() }, &self.texts)
    }
}

impl PostgresStore {
    /// The names that the application has set.
    pub(crate) fn names(&self) -> &Names {
        &self.table.names
    }

    /// The statements for the table, which the first call looks up.
    pub(crate) async fn try_statements(&self) -> Result<&Arc<Statements>, sqlx::Error> {
        match self.table.statements.get() {
            Some(statements) => Ok(statements),
            // Boxed: keeps the futures of all other calls small.
            None => Box::pin(self.look_up_table()).await,
        }
    }

    /// The same, with the error of an operation.
    pub(crate) async fn statements(
        &self,
        operation: &'static str,
    ) -> Result<&Arc<Statements>, StoreError> {
        self.try_statements().await.map_err(|error| self.store_error(operation, error))
    }

    async fn look_up_table(&self) -> Result<&Arc<Statements>, sqlx::Error> {
        let found = async {
            let text = AssertSqlSafe(self.names().fill(SCHEMA)).into_sql_str();
            // The session of these connections is never used by a handler.
            let look_up = Statement::new(&text, Vec::new());
            let rows = self.try_execute_on(&self.pools.renewals, &look_up, Resend::Always).await?;
            let name = rows.first().map(|row| row.try_get("schema")).transpose()?;
            let schema = name.and_then(SchemaName::found);
            let schema = schema.ok_or_else(|| sqlx::Error::Configuration(UnusableSchema.into()))?;
            Ok(Arc::new(self.table.statements_in(schema)))
        };
        self.table.statements.get_or_try_init(|| found).await
    }
}

/// The table is in a schema that no statement can name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the `search_path` finds the table in a temporary schema, or in one whose name contains a \
     brace, or `$` before a digit; set another one with `PostgresStore::schema`"
)]
struct UnusableSchema;
