//! The statements, filled in for one table.

use std::{borrow::Cow, fmt::Write};

use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, SqlStr, postgres::PgArguments, query::Query};

use crate::{
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    record::RecordId,
    store::{
        Claim, Renewal,
        sql::{TableName, abandoned_code, sql_millis},
    },
};

/// Milliseconds since the Unix epoch. It moves on within a statement; where two columns need the same, the statement keeps it.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The same, but as it was when the transaction began.
const BEGUN: &str = "(extract(epoch FROM transaction_timestamp()) * 1000)::bigint";

/// Two claims that meet under another level make one of them fail, and it has to be sent again.
const ISOLATION: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ";

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// One statement an atomic step; each file says what its parameters are.
        pub(super) struct Statements {
            pub(super) names: Names,
            /// Under which `insert` is prepared by SQL: another text has another one.
            pub(super) insert_name: String,
            $($name: SqlStr,)*
        }

        impl Statements {
            pub(super) fn new(names: Names) -> Self {
                $(let $name = names.filled(include_str!(concat!("../../sql/postgres/", stringify!($name), ".sql")));)*
                Self { names, insert_name: String::new(), $($name,)* }.named()
            }

            /// With the texts of other files.
            #[cfg(test)]
            pub(super) fn altered(names: Names, alter: impl Fn(&str, &str) -> String) -> Self {
                $(let $name = alter(stringify!($name), include_str!(concat!("../../sql/postgres/", stringify!($name), ".sql")));)*
                $(let $name = names.filled(&$name);)*
                Self { names, insert_name: String::new(), $($name,)* }.named()
            }
        }
    };
}

statements! {
    read, claim, insert, start_over, take_over, hold, renew, complete, release, abandon, resolve_complete, resolve_release, purge,
}

impl Statements {
    fn named(self) -> Self {
        let insert_name = format!("idempotent_{:08x}", crc32fast::hash(self.insert.as_str().as_bytes()));
        Self { insert_name, ..self }
    }
}

/// Where the records are.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Without one, the first of the server's `search_path`.
    pub(super) schema: Option<TableName>,
    pub(super) table: TableName,
}

impl Names {
    /// A text with the names, which [`TableName`] has checked, and the time.
    pub(super) fn fill(&self, text: &str) -> String {
        let schema = self.schema.as_ref().map(|schema| format!("\"{}\".", schema.as_str())).unwrap_or_default();
        // Comments stay here; parameters that are written out would be written there too.
        let text = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        self.table.fill(&text.replace("{schema}", &schema).replace("{begun}", BEGUN), NOW)
    }

    pub(super) fn filled(&self, text: &str) -> SqlStr {
        // Clones of a shared text do not copy it.
        AssertSqlSafe(std::sync::Arc::<str>::from(self.fill(text))).into_sql_str()
    }
}

/// A parameter.
enum Value<'a> {
    Bytes(Cow<'a, [u8]>),
    Int(i64),
    ByteArrays(Vec<&'a [u8]>),
    Ints(Vec<i64>),
}

/// A statement and its parameters, for either way to send it.
pub(super) struct Statement<'a> {
    text: &'a SqlStr,
    values: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    fn new(text: &'a SqlStr, values: Vec<Value<'a>>) -> Self {
        Self { text, values }
    }

    /// As a prepared statement, which stays with its connection.
    pub(super) fn prepared(&self) -> Query<'_, Postgres, PgArguments> {
        self.values.iter().fold(sqlx::query(self.text.clone()), |query, value| match value {
            Value::Bytes(bytes) => query.bind(bytes.as_ref()),
            Value::Int(int) => query.bind(int),
            Value::ByteArrays(arrays) => query.bind(arrays.as_slice()),
            Value::Ints(ints) => query.bind(ints.as_slice()),
        })
    }

    /// As one message, and so one transaction, that holds everything and leaves nothing behind. Its parameters become literals; they are numbers and
    /// hexadecimal digits only, so there is nothing to escape.
    pub(super) fn plain(&self) -> AssertSqlSafe<String> {
        let mut text = ISOLATION.to_owned();
        self.write(&mut text);
        AssertSqlSafe(text)
    }

    /// Prepares it under a name, as part of a longer message.
    pub(super) fn write_prepare(&self, name: &str, text: &mut String) {
        let types: Vec<_> = self.values.iter().map(Value::database_type).collect();
        let _ = write!(text, "PREPARE {name} ({}) AS {}; ", types.join(", "), self.text.as_str());
    }

    /// Runs what was prepared under a name, as part of a longer message.
    pub(super) fn write_execute(&self, name: &str, text: &mut String) {
        let _ = write!(text, "EXECUTE {name} ");
        for (index, value) in self.values.iter().enumerate() {
            text.push(if index == 0 { '(' } else { ',' });
            value.write(text);
        }
        text.push(')');
    }

    /// As part of a longer message.
    pub(super) fn write(&self, text: &mut String) {
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
    fn database_type(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "bytea",
            Self::Int(_) => "bigint",
            Self::ByteArrays(_) => "bytea[]",
            Self::Ints(_) => "bigint[]",
        }
    }

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

impl Statements {
    pub(super) fn read<'a>(&'a self, id: &'a RecordId) -> Statement<'a> {
        Statement::new(&self.read, vec![bytes(id.as_bytes())])
    }

    pub(super) fn claim<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        let [ttl, abandoned] = lasting(claim);
        Statement::new(&self.claim, claiming(id, claim, [ttl, abandoned]))
    }

    pub(super) fn insert<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        let [ttl, abandoned] = lasting(claim);
        Statement::new(&self.insert, claiming(id, claim, [ttl, abandoned]))
    }

    pub(super) fn start_over<'a>(&'a self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        let [ttl, abandoned] = lasting(claim);
        Statement::new(&self.start_over, claiming(id, claim, [ttl, abandoned, bytes(seen.as_bytes())]))
    }

    pub(super) fn take_over<'a>(&'a self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        Statement::new(&self.take_over, claiming(id, claim, [bytes(seen.as_bytes())]))
    }

    pub(super) fn hold<'a>(&'a self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        Statement::new(&self.hold, vec![bytes(id.as_bytes()), fingerprint(claim), bytes(seen.as_bytes())])
    }

    pub(super) fn renew<'a>(&'a self, leases: &'a [Renewal]) -> Statement<'a> {
        let ids = leases.iter().map(|renewal| renewal.lease.id.as_bytes().as_slice()).collect();
        let owners = leases.iter().map(|renewal| renewal.lease.owner.as_bytes().as_slice()).collect();
        let extends = leases.iter().map(|renewal| sql_millis(renewal.extend)).collect();
        Statement::new(&self.renew, vec![Value::ByteArrays(ids), Value::ByteArrays(owners), Value::Ints(extends)])
    }

    pub(super) fn complete<'a>(&'a self, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
        fenced(&self.complete, lease, [bytes(recording)])
    }

    pub(super) fn release<'a>(&'a self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.release, lease, [])
    }

    pub(super) fn abandon<'a>(&'a self, lease: &'a Lease, policy: Abandoned) -> Statement<'a> {
        fenced(&self.abandon, lease, [Value::Int(abandoned_code(policy))])
    }

    pub(super) fn resolve_complete<'a>(&'a self, seen: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
        fenced(&self.resolve_complete, seen, [bytes(recording)])
    }

    pub(super) fn resolve_release<'a>(&'a self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.resolve_release, seen, [])
    }

    pub(super) fn purge(&self, limit: u32) -> Statement<'_> {
        Statement::new(&self.purge, vec![Value::Int(i64::from(limit))])
    }
}

fn bytes(bytes: &[u8]) -> Value<'_> {
    Value::Bytes(Cow::Borrowed(bytes))
}

fn fingerprint(claim: &Claim) -> Value<'static> {
    Value::Bytes(claim.fingerprint.to_bytes().to_vec().into())
}

fn lasting(claim: &Claim) -> [Value<'static>; 2] {
    [Value::Int(sql_millis(claim.ttl)), Value::Int(abandoned_code(claim.abandoned))]
}

fn claiming<'a, const N: usize>(id: &'a RecordId, claim: &'a Claim, more: [Value<'a>; N]) -> Vec<Value<'a>> {
    let owner = bytes(claim.owner.as_bytes());
    let first = [bytes(id.as_bytes()), fingerprint(claim), owner, Value::Int(sql_millis(claim.lease))];
    first.into_iter().chain(more).collect()
}

fn fenced<'a, const N: usize>(text: &'a SqlStr, lease: &'a Lease, more: [Value<'a>; N]) -> Statement<'a> {
    let first = [bytes(lease.id.as_bytes()), bytes(lease.owner.as_bytes())];
    Statement::new(text, first.into_iter().chain(more).collect())
}

#[cfg(test)]
impl super::PostgresStore {
    /// The store with other statements; `alter` is told the name of a file and what is in it.
    pub(crate) fn altered(self, alter: impl Fn(&str, &str) -> String) -> Self {
        let statements = Statements::altered(self.statements.names.clone(), alter);
        Self { statements: std::sync::Arc::new(statements), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_statement_holds_its_parameters_as_literals() {
        let text = AssertSqlSafe("SELECT $1, $10, $2 + $2, $3, $4;".to_owned()).into_sql_str();
        let (one, two) = ([0x0f_u8, 0xf0], [1_u8]);
        let values = vec![bytes(b"'"), Value::Int(-7), Value::ByteArrays(vec![&one, &two]), Value::Ints(vec![])];
        let plain = Statement::new(&text, values).plain().into_sql_str();
        let expected = r"SELECT E'\\x27'::bytea, , (-7)::bigint + (-7)::bigint, ARRAY[E'\\x0ff0'::bytea,E'\\x01'::bytea]::bytea[], ARRAY[]::bigint[];";
        assert_eq!(plain.as_str().strip_prefix(ISOLATION), Some(expected));
    }

    #[test]
    fn every_place_in_a_statement_is_filled() {
        let schema = TableName::new("mine").ok();
        let statements = Statements::new(Names { schema, ..Names::default() });
        assert!(statements.claim.as_str().contains(r#"INSERT INTO "mine"."idempotency_records""#));
        for text in [&statements.claim, &statements.insert, &statements.renew, &statements.purge] {
            assert!(!text.as_str().contains(['{', '}']), "{}", text.as_str());
        }
    }
}
