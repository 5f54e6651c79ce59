//! A statement and its parameters, for each mode of sending it.

use std::{borrow::Cow, fmt::Write};

use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, SqlStr, postgres::PgArguments, query::Query};

use crate::server::timeouts::ServerLimits;

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

/// A parameter of a statement.
pub(crate) enum Value<'a> {
    Bytes(Cow<'a, [u8]>),
    Int(i64),
    ByteArrays(Vec<&'a [u8]>),
    Ints(Vec<i64>),
}

/// A statement and its parameters, which can be sent in either mode.
pub(crate) struct Statement<'a> {
    pub(crate) text: &'a SqlStr,
    pub(crate) values: Vec<Value<'a>>,
    /// Whether a value is a response or the digest of a request. Such a value is never sent as
    /// text, because the server logs the text of a failing statement.
    pub(crate) confidential: bool,
    /// Whether the statement needs [`BY_INDEX`] where its session does not have it.
    pub(crate) by_index: bool,
}

impl<'a> Statement<'a> {
    pub(crate) fn new(text: &'a SqlStr, values: Vec<Value<'a>>) -> Self {
        Self { text, values, confidential: false, by_index: false }
    }

    pub(crate) fn confidential(text: &'a SqlStr, values: Vec<Value<'a>>) -> Self {
        Self { confidential: true, ..Self::new(text, values) }
    }

    /// A statement that looks many records up by their ids, in any session.
    pub(crate) fn by_index(text: &'a SqlStr, values: Vec<Value<'a>>) -> Self {
        Self { by_index: true, ..Self::new(text, values) }
    }

    /// As a statement with separate parameters, which stays prepared on its connection by default.
    pub(crate) fn prepared(&self) -> Query<'_, Postgres, PgArguments> {
        self.values.iter().fold(sqlx::query(self.text.clone()), |query, value| match value {
            Value::Bytes(bytes) => query.bind(bytes.as_ref()),
            Value::Int(int) => query.bind(int),
            Value::ByteArrays(arrays) => query.bind(arrays.as_slice()),
            Value::Ints(ints) => query.bind(ints.as_slice()),
        })
    }

    /// Begins a transaction for a statement with separate parameters; it keeps the session in which
    /// the statement is prepared.
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
    /// parameters become literals of numbers and hexadecimal digits only, so nothing needs
    /// escaping. Not for [confidential](Self::confidential) values.
    pub(crate) fn plain(&self) -> AssertSqlSafe<String> {
        let mut text = settings(ServerLimits::STEP);
        self.write(&mut text);
        AssertSqlSafe(text)
    }

    fn write(&self, text: &mut String) {
        let mut parts = self.text.as_str().split('$');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let value = number
                .parse::<usize>()
                .ok()
                .and_then(|number| self.values.get(number.checked_sub(1)?));
            match value {
                Some(value) => value.write(text),
                // Part of the name of a schema.
                None if number.is_empty() => text.push('$'),
                None => {}
            }
            text.push_str(rest);
        }
    }
}

impl Value<'_> {
    /// Appends the value as a literal of numbers and hexadecimal digits only.
    pub(crate) fn write(&self, text: &mut String) {
        match self {
            Self::Bytes(bytes) => write_bytes(text, bytes),
            Self::Int(int) => write_int(text, int),
            Self::ByteArrays(arrays) => {
                write_array(text, arrays, "bytea", |text, bytes| write_bytes(text, bytes))
            }
            Self::Ints(ints) => write_array(text, ints, "bigint", write_int),
        }
    }
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
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
        let text = AssertSqlSafe("SELECT $1, $10, $2 + $2, $3, $4;".to_owned()).into_sql_str();
        let (one, two) = ([0x0f_u8, 0xf0], [1_u8]);
        let values = vec![
            Value::Bytes(Cow::Borrowed(b"'")),
            Value::Int(-7),
            Value::ByteArrays(vec![&one, &two]),
            Value::Ints(vec![]),
        ];
        let plain = Statement::new(&text, values).plain().into_sql_str();
        let expected = [
            r"SELECT E'\\x27'::bytea, , (-7)::bigint + (-7)::bigint, ",
            r"ARRAY[E'\\x0ff0'::bytea,E'\\x01'::bytea]::bytea[], ARRAY[]::bigint[];",
        ]
        .concat();
        assert_eq!(
            plain.as_str().strip_prefix(&settings(ServerLimits::STEP)),
            Some(expected.as_str())
        );
    }
}
