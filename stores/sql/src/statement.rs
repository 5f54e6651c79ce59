//! A statement and the values of its parameters, before a driver binds them.

use std::borrow::Cow;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

/// A value of a parameter.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// An integer of 64 bits.
    Int(i64),
    /// A text.
    Text(Cow<'a, str>),
    /// An array of bytes, for a database that has arrays.
    ByteArrays(Vec<&'a [u8]>),
    /// An array of integers, for a database that has arrays.
    Ints(Vec<i64>),
}

impl<'a> Value<'a> {
    /// Creates a value of these bytes, without copying them.
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }

    /// Creates a value of this text, without copying it.
    pub fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

/// A statement and the values of its parameters.
#[derive(Debug)]
pub struct Statement<'a, T = SqlStr> {
    /// The text, whose parameters are numbered.
    pub text: &'a T,
    /// The value of each parameter, beginning with number 1.
    pub values: Vec<Value<'a>>,
    /// Whether a value is a response or the digest of a request. Such a value must not become part
    /// of a text, because a server logs the text of a failing statement.
    pub confidential: bool,
    /// Whether the statement looks many records up by an index.
    pub by_index: bool,
}

impl<'a, T> Statement<'a, T> {
    /// Creates a statement without confidential values.
    pub fn new(text: &'a T, values: Vec<Value<'a>>) -> Self {
        Self { text, values, confidential: false, by_index: false }
    }

    /// Creates a statement with a confidential value.
    pub fn confidential(text: &'a T, values: Vec<Value<'a>>) -> Self {
        Self { confidential: true, ..Self::new(text, values) }
    }

    /// Creates a statement that looks many records up.
    pub fn by_index(text: &'a T, values: Vec<Value<'a>>) -> Self {
        Self { by_index: true, ..Self::new(text, values) }
    }

    /// Replaces the text by one with the same parameters.
    #[must_use]
    pub fn with_text(self, text: &'a T) -> Self {
        Self { text, ..self }
    }

    /// Adds values for further parameters.
    #[must_use]
    pub fn with_values(mut self, more: impl IntoIterator<Item = Value<'a>>) -> Self {
        self.values.extend(more);
        self
    }
}

/// Shares a text, so that clones do not copy it. The caller has verified what was filled in.
pub fn shared_text(text: String) -> SqlStr {
    AssertSqlSafe(std::sync::Arc::<str>::from(text)).into_sql_str()
}
