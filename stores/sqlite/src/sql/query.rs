//! Statements as queries of the driver.

use std::borrow::Cow;

use futures_util::TryStreamExt as _;
use sqlx::{
    Either, Executor as _, SqlStr, Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments,
};

use idempotent_sql::statement::{Statement, Value};

pub(crate) type SqliteQuery = Query<'static, Sqlite, SqliteArguments>;

pub(crate) fn query(statement: Statement<'_>) -> SqliteQuery {
    bound(statement.text, statement.values)
}

/// A text with the values of its parameters.
pub(crate) fn bound<'a>(text: &SqlStr, values: impl IntoIterator<Item = Value<'a>>) -> SqliteQuery {
    values.into_iter().fold(sqlx::query(text.clone()), |query, value| match value {
        Value::Bytes(Cow::Borrowed(bytes)) => query.bind(bytes),
        Value::Bytes(Cow::Owned(bytes)) => query.bind(bytes),
        Value::Int(int) => query.bind(int),
        Value::Text(Cow::Borrowed(text)) => query.bind(text),
        Value::Text(Cow::Owned(text)) => query.bind(text),
        // SQLite has no arrays; no statement of this store has such a value.
        Value::ByteArrays(_) | Value::Ints(_) => query,
    })
}

/// Executes a text of several statements; adds to `changed` how many rows each of them has changed.
/// For a statement that is not an `INSERT`, `UPDATE` or `DELETE` the number has no meaning.
pub(crate) async fn changes(
    text: SqliteQuery,
    connection: &mut SqliteConnection,
    changed: &mut Vec<u64>,
) -> Result<(), sqlx::Error> {
    let mut results = connection.fetch_many(text);
    while let Some(result) = results.try_next().await? {
        if let Either::Left(done) = result {
            changed.push(done.rows_affected());
        }
    }
    Ok(())
}
