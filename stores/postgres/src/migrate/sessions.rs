//! Verifies that every kind of a store's connections meets the same table as the same role. An
//! application's hook can set both, and differently for each connection.

use std::fmt;

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::{engine::Engine, error::NAME, server::timeouts::RESPONSE_TIMEOUT, transaction::CLEAN};
use idempotent_core::StoreError;
use idempotent_sql::ConnectionPool;

/// Reads the role, the schema in which the `search_path` finds the table, and the table itself. It
/// needs no privilege on the schema.
const SESSION: &str = r#"
    SELECT current_user::text AS role,
           (SELECT searched.name::text
            FROM unnest(current_schemas(false)) WITH ORDINALITY AS searched (name, place)
            JOIN pg_catalog.pg_namespace AS n ON n.nspname = searched.name
            JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid
            WHERE c.relname = '{table}'
            ORDER BY searched.place
            LIMIT 1) AS schema,
           (SELECT c.oid::bigint
            FROM pg_catalog.pg_class AS c
            JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.relname = '{table}'
              AND '"' || replace(n.nspname, '"', '""') || '".' = '{quoted_schema}') AS id"#;

/// What a connection finds.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    role: String,
    schema: Option<String>,
    id: Option<i64>,
}

/// Refuses connections of one kind that would meet another table than those of another kind, or
/// meet it as another role.
pub(crate) async fn verify(engine: &Engine, operation: &'static str) -> Result<(), StoreError> {
    let names = &engine.statements(operation).await?.names;
    let text = names.fill(SESSION);
    let mut first: Option<(&'static str, Session)> = None;
    for (kind, connections) in engine.pools.kinds() {
        let found = match session(engine, connections, &text).await {
            Ok(found) => found,
            // Steps or handlers use all of them, and the next check may find one.
            Err(sqlx::Error::PoolTimedOut) => continue,
            Err(error) => return Err(engine.store_error(operation, error)),
        };
        let used = names.schema.as_ref().map_or("", |schema| schema.as_str());
        let difference = match &first {
            Some((_, other)) if other.role != found.role => {
                Some(Difference::Role(other.role.clone(), found.role.clone()))
            }
            _ if engine.names().schema.is_none() && found.schema.as_deref() != Some(used) => {
                let schema = found.schema.clone().unwrap_or_else(|| "none".into());
                Some(Difference::Schema(used.to_owned(), schema))
            }
            Some((_, other)) if other.id != found.id => Some(Difference::Table),
            _ => None,
        };
        let other = first.as_ref().map_or(kind, |(kind, _)| *kind);
        if let Some(difference) = difference {
            let differing = DifferingSessions { kinds: [other, kind], difference };
            return Err(StoreError::permanent(NAME, operation, differing));
        }
        first.get_or_insert((kind, found));
    }
    Ok(())
}

async fn session(
    engine: &Engine,
    connections: &ConnectionPool<PgConnection>,
    text: &str,
) -> Result<Session, sqlx::Error> {
    let mut connection = connections.get_verified().await?;
    // A transaction of a handler begins like this too.
    let is_handlers = std::ptr::eq(connections, &engine.pools.transactions);
    let clean = if is_handlers && connection.is_own() && engine.pools.server.own_sessions {
        CLEAN
    } else {
        ""
    };
    let text = AssertSqlSafe(format!("{clean}{text}"));
    let found = sqlx::raw_sql(text).fetch_one(&mut *connection);
    let row = engine.pools.health.exchange(RESPONSE_TIMEOUT, found).await?;
    connection.give_back();
    Ok(Session {
        role: row.try_get("role")?,
        schema: row.try_get("schema")?,
        id: row.try_get("id")?,
    })
}

/// Connections of two kinds differ in their sessions.
#[derive(Debug)]
struct DifferingSessions {
    kinds: [&'static str; 2],
    difference: Difference,
}

#[derive(Debug)]
enum Difference {
    Role(String, String),
    /// The schema that the statements name, and the one that a connection finds.
    Schema(String, String),
    Table,
}

impl fmt::Display for DifferingSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = self.kinds;
        match &self.difference {
            Difference::Role(role, another) => write!(
                f,
                "the store's connections for {one} have the role `{role}`, and those for {other} \
                 `{another}`; give all of them the same role, for example in `after_connect`"
            ),
            Difference::Schema(used, found) => write!(
                f,
                "the store uses the table in the schema `{used}`, but the `search_path` of its \
                 connections for {other} finds it in the schema `{found}`; name the schema with \
                 `PostgresOptions::schema`"
            ),
            Difference::Table => write!(
                f,
                "the store's connections for {one} and for {other} find different tables; connect \
                 all of them to the same database"
            ),
        }
    }
}

impl std::error::Error for DifferingSessions {}
