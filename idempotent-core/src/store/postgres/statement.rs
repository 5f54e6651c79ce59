//! A statement and its parameters, for each way to send it.

use std::{borrow::Cow, fmt::Write};

use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, SqlStr, postgres::PgArguments, query::Query};

use super::connect::{LOCK_TIMEOUT, STATEMENT_TIMEOUT};

/// Two claims that meet under another isolation level make one of them fail, and it has to be sent again. The time-outs bound what the
/// statement may take in the server; they are what sessions of the store's own are opened with. Rows come as text, whose bytes the driver
/// reads in one form only.
fn settings() -> String {
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; \
         SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'; SET LOCAL bytea_output = hex; "
    )
}

/// A parameter.
pub(super) enum Value<'a> {
    Bytes(Cow<'a, [u8]>),
    Int(i64),
    ByteArrays(Vec<&'a [u8]>),
    Ints(Vec<i64>),
}

/// A statement and its parameters, for either way to send it.
pub(super) struct Statement<'a> {
    pub(super) text: &'a SqlStr,
    pub(super) values: Vec<Value<'a>>,
    /// Whether one of its values is a response or the digest of a request. Then it is never sent as text, which the server writes into
    /// its log if the statement fails.
    pub(super) confidential: bool,
}

impl<'a> Statement<'a> {
    pub(super) fn new(text: &'a SqlStr, values: Vec<Value<'a>>) -> Self {
        Self { text, values, confidential: false }
    }

    pub(super) fn confidential(text: &'a SqlStr, values: Vec<Value<'a>>) -> Self {
        Self { text, values, confidential: true }
    }

    /// With its values apart from its text. It stays with its connection unless the caller says otherwise.
    pub(super) fn prepared(&self) -> Query<'_, Postgres, PgArguments> {
        self.values.iter().fold(sqlx::query(self.text.clone()), |query, value| match value {
            Value::Bytes(bytes) => query.bind(bytes.as_ref()),
            Value::Int(int) => query.bind(int),
            Value::ByteArrays(arrays) => query.bind(arrays.as_slice()),
            Value::Ints(ints) => query.bind(ints.as_slice()),
        })
    }

    /// Begins a transaction for a statement that is sent apart from its values: it keeps the session that the statement is prepared in.
    pub(super) fn begins() -> SqlStr {
        AssertSqlSafe(format!("BEGIN; {}", settings())).into_sql_str()
    }

    /// As one message, and so one transaction, that holds everything and leaves nothing behind. Its parameters become literals; they are numbers and
    /// hexadecimal digits only, so there is nothing to escape. Not for what is [confidential](Self::confidential).
    pub(super) fn plain(&self) -> AssertSqlSafe<String> {
        let mut text = settings();
        self.write(&mut text);
        AssertSqlSafe(text)
    }

    fn write(&self, text: &mut String) {
        let mut parts = self.text.as_str().split('$');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let value = number.parse::<usize>().ok().and_then(|number| self.values.get(number.checked_sub(1)?));
            if let Some(value) = value {
                value.write(text);
            }
            text.push_str(rest);
        }
    }
}

impl Value<'_> {
    fn write(&self, text: &mut String) {
        match self {
            Self::Bytes(bytes) => write_bytes(text, bytes),
            Self::Int(int) => write_int(text, int),
            Self::ByteArrays(arrays) => write_array(text, arrays, "bytea", |text, bytes| write_bytes(text, bytes)),
            Self::Ints(ints) => write_array(text, ints, "bigint", write_int),
        }
    }
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    text.reserve(bytes.len() * 2 + 16);
    text.push_str(r"E'\\x");
    text.extend(
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).filter_map(|digit| char::from_digit(digit.into(), 16)),
    );
    text.push_str("'::bytea");
}

fn write_int(text: &mut String, int: &i64) {
    // Writing to a string does not fail.
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
        let expected = r"SELECT E'\\x27'::bytea, , (-7)::bigint + (-7)::bigint, ARRAY[E'\\x0ff0'::bytea,E'\\x01'::bytea]::bytea[], ARRAY[]::bigint[];";
        assert_eq!(plain.as_str().strip_prefix(&settings()), Some(expected));
    }
}
