//! The statements, filled in for one table.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, Sqlite, query::Query, sqlite::SqliteArguments};

use crate::{
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    record::RecordId,
    store::{
        Claim,
        sql::{SAVEPOINT, TableName, abandoned_code, sql_millis},
    },
};

/// Milliseconds since the Unix epoch. It is the same in all of one statement.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// One statement an atomic step; each file says what its parameters are.
        pub(super) struct Statements {
            pub(super) table: TableName,
            /// `claim`, then the savepoint.
            claim_within: SqlStr,
            $($name: SqlStr,)*
        }

        impl Statements {
            pub(super) fn new(table: TableName) -> Self {
                $(let $name = filled(&table, include_str!(concat!("../../sql/sqlite/", stringify!($name), ".sql")));)*
                Self { table, claim_within: SqlStr::from_static(""), $($name,)* }.joined()
            }

            /// With the texts of other files.
            #[cfg(test)]
            pub(super) fn altered(table: TableName, alter: impl Fn(&str, &str) -> String) -> Self {
                $(let $name = alter(stringify!($name), include_str!(concat!("../../sql/sqlite/", stringify!($name), ".sql")));)*
                $(let $name = filled(&table, &$name);)*
                Self { table, claim_within: SqlStr::from_static(""), $($name,)* }.joined()
            }
        }
    };
}

statements! {
    read, claim, take_over, hold, renew, complete, release, abandon, resolve_complete, resolve_release, purge,
}

pub(super) type Statement<'a> = Query<'a, Sqlite, SqliteArguments>;

/// A statement with the table's name, which [`TableName`] has checked, and the time.
pub(super) fn filled(table: &TableName, statement: &str) -> SqlStr {
    shared(table.fill(statement, NOW))
}

/// Clones of a shared text do not copy it.
fn shared(text: String) -> SqlStr {
    AssertSqlSafe(std::sync::Arc::<str>::from(text)).into_sql_str()
}

impl Statements {
    fn joined(self) -> Self {
        let text = format!("{};\n{SAVEPOINT}", self.claim.as_str());
        Self { claim_within: shared(text), ..self }
    }

    pub(super) fn read<'a>(&self, id: &'a RecordId) -> Statement<'a> {
        sqlx::query(self.read.clone()).bind(id.as_bytes().as_slice())
    }

    pub(super) fn claim<'a>(&self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        claiming(&self.claim, id, claim).bind(sql_millis(claim.ttl)).bind(abandoned_code(claim.abandoned))
    }

    pub(super) fn claim_within<'a>(&self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        claiming(&self.claim_within, id, claim).bind(sql_millis(claim.ttl)).bind(abandoned_code(claim.abandoned))
    }

    pub(super) fn take_over<'a>(&self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        claiming(&self.take_over, id, claim).bind(seen.as_bytes().as_slice())
    }

    pub(super) fn hold<'a>(&self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        sqlx::query(self.hold.clone())
            .bind(id.as_bytes().as_slice())
            .bind(claim.fingerprint.to_bytes().to_vec())
            .bind(seen.as_bytes().as_slice())
    }

    pub(super) fn renew<'a>(&self, leases: String) -> Statement<'a> {
        sqlx::query(self.renew.clone()).bind(leases)
    }

    pub(super) fn complete<'a>(&self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.complete, lease)
    }

    pub(super) fn release<'a>(&self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.release, lease)
    }

    pub(super) fn abandon<'a>(&self, lease: &'a Lease, policy: Abandoned) -> Statement<'a> {
        fenced(&self.abandon, lease).bind(abandoned_code(policy))
    }

    pub(super) fn resolve_complete<'a>(&self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.resolve_complete, seen)
    }

    pub(super) fn resolve_release<'a>(&self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.resolve_release, seen)
    }

    pub(super) fn purge<'a>(&self, limit: u32) -> Statement<'a> {
        sqlx::query(self.purge.clone()).bind(i64::from(limit))
    }
}

fn fenced<'a>(statement: &SqlStr, lease: &'a Lease) -> Statement<'a> {
    sqlx::query(statement.clone()).bind(lease.id.as_bytes().as_slice()).bind(lease.owner.as_bytes().as_slice())
}

fn claiming<'a>(statement: &SqlStr, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
    sqlx::query(statement.clone())
        .bind(id.as_bytes().as_slice())
        .bind(claim.fingerprint.to_bytes().to_vec())
        .bind(claim.owner.as_bytes().as_slice())
        .bind(sql_millis(claim.lease))
}

#[cfg(test)]
impl super::SqliteStore {
    /// The store with other statements; `alter` is told the name of a file and what is in it.
    pub(crate) fn altered(self, alter: impl Fn(&str, &str) -> String) -> Self {
        let statements = Statements::altered(self.statements.table.clone(), alter);
        Self { statements: std::sync::Arc::new(statements), ..self }
    }
}
