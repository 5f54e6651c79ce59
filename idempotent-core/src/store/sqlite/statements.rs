//! The statements, filled in for one table.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, Sqlite, query::Query, sqlite::SqliteArguments};

use crate::{
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::Claim,
    record_id::RecordId,
    store::sql::{TableName, abandoned_code, sql_millis},
};

use super::guarded::SETTINGS;

/// Milliseconds since the Unix epoch. It is the same in all of one statement.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

macro_rules! texts {
    ($($name:ident),* $(,)?) => {
        /// One statement an atomic step; each file says what its parameters are.
        struct Texts {
            $($name: SqlStr,)*
        }

        impl Texts {
            fn new(table: &TableName) -> Self {
                Self { $($name: filled(table, include_str!(concat!("../../sql/sqlite/", stringify!($name), ".sql"))),)* }
            }

            /// With the texts of other files.
            #[cfg(test)]
            fn altered(table: &TableName, alter: impl Fn(&str, &str) -> String) -> Self {
                $(let $name = alter(stringify!($name), include_str!(concat!("../../sql/sqlite/", stringify!($name), ".sql")));)*
                Self { $($name: filled(table, &$name),)* }
            }
        }
    };
}

texts! {
    read, claim, take_over, hold, shorten, renew, complete, release, abandon, resolve_complete, resolve_release, purge,
    shorten_expired,
}

/// The statements of one table.
pub(super) struct Statements {
    pub(super) table: TableName,
    pub(super) within: Within,
    texts: Texts,
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

/// Texts of more than one statement, for a transaction that a handler has. SQLite runs each in one
/// call to its thread.
///
/// What the handler writes comes after two savepoints: one to return to, and one whose release
/// proves that the transaction in which it was set is still open. Their names are random, so that
/// no handler can set them again.
pub(super) struct Within {
    /// Begins a transaction for a handler. The lock is taken at once: a lock that is requested
    /// after a read is refused if another connection has written in between.
    pub(super) begin: SqlStr,
    pub(super) savepoints: SqlStr,
    /// Undoes what was written since the savepoints.
    pub(super) undo: SqlStr,
    /// Proves that the transaction is open, and reads the connection's settings.
    pub(super) prove: SqlStr,
    /// Claims, then sets the savepoints.
    claim: SqlStr,
    /// The proof, the completion, the settings.
    complete: SqlStr,
    /// The proof, the abandonment, the settings.
    abandon: SqlStr,
}

impl Within {
    fn new(Texts { claim, complete, abandon, .. }: &Texts) -> Self {
        let random = fastrand::u64(..);
        let (effects, proof) = (format!("idempotent_effects_{random:x}"), format!("idempotent_proof_{random:x}"));
        let savepoints = format!("SAVEPOINT {effects}; SAVEPOINT {proof}");
        let proof = format!("RELEASE {proof}; SAVEPOINT {proof}");
        let ending = |step: &SqlStr| shared(format!("{proof};\n{};\n{SETTINGS}", step.as_str()));
        Self {
            begin: shared(format!("BEGIN IMMEDIATE; {savepoints}")),
            undo: shared(format!("ROLLBACK TO {effects}; RELEASE {effects}; {savepoints}")),
            prove: shared(format!("{proof};\n{SETTINGS}")),
            claim: shared(format!("{};\n{savepoints}", claim.as_str())),
            complete: ending(complete),
            abandon: ending(abandon),
            savepoints: shared(savepoints),
        }
    }
}

impl Statements {
    pub(super) fn new(table: TableName) -> Self {
        Self::of(Texts::new(&table), table)
    }

    fn of(texts: Texts, table: TableName) -> Self {
        Self { within: Within::new(&texts), texts, table }
    }

    pub(super) fn read<'a>(&self, id: &'a RecordId) -> Statement<'a> {
        sqlx::query(self.texts.read.clone()).bind(id.as_bytes().as_slice())
    }

    pub(super) fn claim<'a>(&self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        claiming(&self.texts.claim, id, claim).bind(sql_millis(claim.ttl)).bind(abandoned_code(claim.abandoned))
    }

    pub(super) fn claim_within<'a>(&self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        claiming(&self.within.claim, id, claim).bind(sql_millis(claim.ttl)).bind(abandoned_code(claim.abandoned))
    }

    pub(super) fn take_over<'a>(&self, id: &'a RecordId, claim: &'a Claim, seen: u32) -> Statement<'a> {
        claiming(&self.texts.take_over, id, claim).bind(seen)
    }

    pub(super) fn hold<'a>(&self, id: &'a RecordId, claim: &'a Claim, seen: &'a OwnerToken) -> Statement<'a> {
        sqlx::query(self.texts.hold.clone())
            .bind(id.as_bytes().as_slice())
            .bind(claim.fingerprint.to_bytes().to_vec())
            .bind(seen.as_bytes().as_slice())
    }

    pub(super) fn shorten<'a>(&self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.texts.shorten, seen)
    }

    pub(super) fn shorten_expired<'a>(&self) -> Statement<'a> {
        sqlx::query(self.texts.shorten_expired.clone())
    }

    pub(super) fn renew<'a>(&self, leases: &'a str) -> Statement<'a> {
        sqlx::query(self.texts.renew.clone()).bind(leases)
    }

    pub(super) fn complete<'a>(&self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.texts.complete, lease)
    }

    pub(super) fn release<'a>(&self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.texts.release, lease)
    }

    pub(super) fn abandon<'a>(&self, lease: &'a Lease, policy: Abandoned) -> Statement<'a> {
        fenced(&self.texts.abandon, lease).bind(abandoned_code(policy))
    }

    pub(super) fn complete_within<'a>(&self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.within.complete, lease)
    }

    pub(super) fn abandon_within<'a>(&self, lease: &'a Lease, policy: Abandoned) -> Statement<'a> {
        fenced(&self.within.abandon, lease).bind(abandoned_code(policy))
    }

    pub(super) fn resolve_complete<'a>(&self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.texts.resolve_complete, seen)
    }

    pub(super) fn resolve_release<'a>(&self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.texts.resolve_release, seen)
    }

    pub(super) fn purge<'a>(&self, limit: u32) -> Statement<'a> {
        sqlx::query(self.texts.purge.clone()).bind(i64::from(limit))
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
    /// The store with other statements; `alter` gets the name of a file and its text.
    pub(crate) fn altered(self, alter: impl Fn(&str, &str) -> String) -> Self {
        let table = self.statements.table.clone();
        let statements = Statements::of(Texts::altered(&table, alter), table);
        Self { statements: std::sync::Arc::new(statements), ..self }
    }
}
