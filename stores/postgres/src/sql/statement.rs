//! A statement and its parameters, in each mode of sending it.

use std::fmt::Write;

use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, SqlStr, postgres::PgArguments, query::Query};

use crate::server::timeouts::ServerLimits;
use idempotent_sql::statement::{Statement, Value};

/// Settings of the planner for statements that name many records. With them it looks each record up
/// by its id. It would otherwise read the whole table while that is small, and keep the plan while
/// it grows, and each partition of a table that has many. It also overestimates the cost of many
/// partitions, and would compile the statement to machine code, half a second each time.
pub(crate) const BY_INDEX: [(&str, &str); 4] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];
/// One more setting for statements that need no other order than that of the ids. On an empty table
/// the planner would read the whole index of the ids, and keep the plan while the table grows.
/// Bitmaps are used for lookups only.
pub(crate) const BY_ID: (&str, &str) = ("enable_indexscan", "off");

/// Settings of a plain statement. Under another isolation level one of two concurrent claims would
/// fail and have to be sent again. The limits are those of the store's own sessions. Rows arrive
/// as text, and the driver decodes only the hexadecimal form of `bytea`.
fn settings(limits: ServerLimits) -> String {
    let ServerLimits { lock, statement } = limits;
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{lock}'; \
         SET LOCAL statement_timeout = '{statement}'; SET LOCAL bytea_output = hex; "
    )
}

/// As a statement with separate parameters, which stays prepared on its connection by default. The
/// statements decode texts from their bytes.
pub(crate) fn prepared<'q>(statement: &'q Statement<'_>) -> Query<'q, Postgres, PgArguments> {
    let query = sqlx::query(statement.text.clone());
    statement.values.iter().fold(query, |query, value| match value {
        Value::Bytes(bytes) => query.bind(bytes.as_ref()),
        Value::Int(int) => query.bind(int),
        Value::Text(text) => query.bind(text.as_bytes()),
        Value::ByteArrays(arrays) => query.bind(arrays.as_slice()),
        Value::Ints(ints) => query.bind(ints.as_slice()),
    })
}

/// Begins a transaction for a statement with separate parameters; it keeps the session in which the
/// statement is prepared.
pub(crate) fn begins(
    limits: ServerLimits,
    planner: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> SqlStr {
    let mut text = format!("BEGIN; {}", settings(limits));
    for (setting, value) in planner {
        // Writing to a `String` does not fail.
        let _ = write!(text, "SET LOCAL {setting} = {value}; ");
    }
    AssertSqlSafe(text).into_sql_str()
}

/// As a single message, and so a single transaction, that leaves nothing in the session. Its
/// parameters become literals of numbers and hexadecimal digits only, so nothing needs escaping.
/// Not for [confidential](Statement::confidential) values.
pub(crate) fn plain(statement: &Statement<'_>) -> AssertSqlSafe<String> {
    let mut text = settings(ServerLimits::STEP);
    let mut parts = statement.text.as_str().split('$');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let value = number
            .parse::<usize>()
            .ok()
            .and_then(|number| statement.values.get(number.checked_sub(1)?));
        match value {
            Some(value) => write_value(&mut text, value),
            // Part of the name of a schema.
            None if number.is_empty() => text.push('$'),
            None => {}
        }
        text.push_str(rest);
    }
    AssertSqlSafe(text)
}

/// Appends the value as a literal of numbers and hexadecimal digits only.
fn write_value(text: &mut String, value: &Value<'_>) {
    match value {
        Value::Bytes(bytes) => write_bytes(text, bytes),
        Value::Int(int) => write_int(text, int),
        Value::Text(value) => write_bytes(text, value.as_bytes()),
        Value::ByteArrays(arrays) => {
            write_array(text, arrays, "bytea", |text, bytes| write_bytes(text, bytes))
        }
        Value::Ints(ints) => write_array(text, ints, "bigint", write_int),
    }
}

pub(crate) fn write_bytes(text: &mut String, bytes: &[u8]) {
    text.reserve(bytes.len() * 2 + 16);
    text.push_str(r"E'\\x");
    text.extend(
        bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 0xf])
            .filter_map(|digit| char::from_digit(digit.into(), 16)),
    );
    text.push_str("'::bytea");
}

fn write_int(text: &mut String, int: &i64) {
    // Writing to a `String` does not fail.
    let _ = write!(text, "({int})::bigint");
}

fn write_array<T>(text: &mut String, items: &[T], of: &str, write_item: impl Fn(&mut String, &T)) {
    text.push_str("ARRAY[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_item(text, item);
    }
    let _ = write!(text, "]::{of}[]");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_statement_holds_its_parameters_as_literals() {
        let text = AssertSqlSafe("SELECT $1, $10, $2 + $2, $3, $4, $5;".to_owned()).into_sql_str();
        let (one, two) = ([0x0f_u8, 0xf0], [1_u8]);
        let values = vec![
            Value::bytes(b"'"),
            Value::Int(-7),
            Value::ByteArrays(vec![&one, &two]),
            Value::Ints(vec![]),
            Value::text("é"),
        ];
        let plain = plain(&Statement::new(&text, values)).into_sql_str();
        let expected = [
            r"SELECT E'\\x27'::bytea, , (-7)::bigint + (-7)::bigint, ",
            r"ARRAY[E'\\x0ff0'::bytea,E'\\x01'::bytea]::bytea[], ARRAY[]::bigint[], ",
            r"E'\\xc3a9'::bytea;",
        ]
        .concat();
        assert_eq!(
            plain.as_str().strip_prefix(&settings(ServerLimits::STEP)),
            Some(expected.as_str())
        );
    }
}
