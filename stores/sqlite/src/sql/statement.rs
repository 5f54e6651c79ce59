//! A statement and the values of its parameters.

use std::{borrow::Cow, sync::Arc};

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, Either, Executor as _, SqlSafeStr, SqlStr, Sqlite, SqliteConnection,
    query::Query, sqlite::SqliteArguments,
};

pub(crate) type Statement = Query<'static, Sqlite, SqliteArguments>;

/// A value of a parameter.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    Bytes(Cow<'a, [u8]>),
    Int(i64),
    Text(&'a str),
}

/// A statement with the values of its parameters.
pub(crate) fn bound<'a>(text: &SqlStr, values: impl IntoIterator<Item = Value<'a>>) -> Statement {
    values.into_iter().fold(sqlx::query(text.clone()), |query, value| match value {
        Value::Bytes(Cow::Borrowed(bytes)) => query.bind(bytes),
        Value::Bytes(Cow::Owned(bytes)) => query.bind(bytes),
        Value::Int(int) => query.bind(int),
        Value::Text(text) => query.bind(text),
    })
}

pub(crate) fn bytes(bytes: &[u8]) -> Value<'_> {
    Value::Bytes(Cow::Borrowed(bytes))
}

/// Shares the text, so that clones do not copy it.
pub(crate) fn shared(text: String) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
}

/// Executes a text of several statements; adds to `changed` how many rows each of them has changed.
/// For a statement that is not an `INSERT`, `UPDATE` or `DELETE` the number has no meaning.
pub(crate) async fn changes(
    text: Statement,
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
