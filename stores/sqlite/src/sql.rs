//! The SQL statements, with the table's name filled in.

use serde_json::json;
use sqlx::SqlStr;

use self::{
    repeated::RepeatedStatement,
    statement::{Statement, Value, bound, bytes, shared},
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, RecordState, ShortText,
    protocol::{Claim, Note, Renewal},
};
use idempotent_sql::{TableName, abandoned_code, sql_millis, status_code};

pub(crate) mod repeated;
pub(crate) mod statement;

/// Reads the connection's settings; `changed` is the number of rows that the last write changed.
pub(crate) const SETTINGS: &str = include_str!("sql/connection.sql");
/// Milliseconds since the Unix epoch; constant within a statement.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// The text of a file, by its name.
macro_rules! text {
    ($name:ident) => {
        include_str!(concat!("sql/", stringify!($name), ".sql"))
    };
}

macro_rules! texts {
    ($($name:ident),* $(,)?) => {
        /// One statement for each atomic step; the header of its file names the parameters.
        struct StatementTexts {
            $($name: SqlStr,)*
        }

        impl StatementTexts {
            /// `of` gets the name and the text of each file.
            fn new(table: &TableName, of: impl Fn(&str, &str) -> String) -> Self {
                Self { $($name: filled(table, &of(stringify!($name), text!($name))),)* }
            }
        }
    };
}

texts! {
    read, existing, claim, take_over, hold, shorten, renew, note, complete, release, abandon,
    resolve_complete, resolve_release, purge, keep, shorten_expired, resumable,
}

/// The statements of one table.
pub(crate) struct Statements {
    pub(crate) table: TableName,
    pub(crate) in_transaction: TransactionStatements,
    pub(crate) claim_batch: RepeatedStatement,
    pub(crate) complete_batch: RepeatedStatement,
    texts: StatementTexts,
}

/// Fills in the table's name, which [`TableName`] has validated, and the time.
pub(crate) fn filled(table: &TableName, statement: &str) -> SqlStr {
    shared(table.fill(statement, NOW))
}

/// Texts of several statements for a transaction that a handler uses. SQLite runs each text in one
/// call to its thread.
///
/// Two savepoints precede the handler's writes: one to roll back to, and one whose release proves
/// that the transaction in which it was set is still open. Their names are random, so that no
/// handler can set them again.
pub(crate) struct TransactionStatements {
    /// Begins a transaction for a handler and takes the write lock at once: SQLite refuses an
    /// upgrade from a read lock if another connection has written in between.
    pub(crate) begin: SqlStr,
    pub(crate) savepoints: SqlStr,
    /// Undoes what was written since the savepoints.
    pub(crate) undo: SqlStr,
    /// Proves that the transaction is open, and reads the connection's settings.
    pub(crate) verify: SqlStr,
    /// Claims, then sets the savepoints.
    claim: SqlStr,
    /// Proves that the transaction is open, adds a note, and reads the settings.
    note: SqlStr,
    /// Proves that the transaction is open, completes, and reads the settings.
    complete: SqlStr,
    /// Proves that the transaction is open, abandons, and reads the settings.
    abandon: SqlStr,
}

impl TransactionStatements {
    fn new(StatementTexts { claim, note, complete, abandon, .. }: &StatementTexts) -> Self {
        let random = fastrand::u64(..);
        let (effects, proof) =
            (format!("idempotent_effects_{random:x}"), format!("idempotent_proof_{random:x}"));
        let savepoints = format!("SAVEPOINT {effects}; SAVEPOINT {proof}");
        let proof = format!("RELEASE {proof}; SAVEPOINT {proof}");
        let ending = |step: &SqlStr| shared(format!("{proof};\n{};\n{SETTINGS}", step.as_str()));
        Self {
            begin: shared(format!("BEGIN IMMEDIATE; {savepoints}")),
            undo: shared(format!("ROLLBACK TO {effects}; RELEASE {effects}; {savepoints}")),
            verify: shared(format!("{proof};\n{SETTINGS}")),
            claim: shared(format!("{};\n{savepoints}", claim.as_str())),
            note: ending(note),
            complete: ending(complete),
            abandon: ending(abandon),
            savepoints: shared(savepoints),
        }
    }
}

impl Statements {
    pub(crate) fn new(table: TableName) -> Self {
        Self::of(table, |_, text| text.to_owned())
    }

    /// The statements of these texts; `text` gets the name and the text of each file.
    pub(crate) fn of(table: TableName, text: impl Fn(&str, &str) -> String) -> Self {
        let texts = StatementTexts::new(&table, text);
        Self {
            in_transaction: TransactionStatements::new(&texts),
            claim_batch: RepeatedStatement::new(texts.claim.as_str(), ", "),
            complete_batch: RepeatedStatement::new(texts.complete.as_str(), "FROM "),
            texts,
            table,
        }
    }

    pub(crate) fn read(&self, id: &RecordId) -> Statement {
        sqlx::query(self.texts.read.clone()).bind(id.as_bytes().as_slice())
    }

    pub(crate) fn existing(&self, id: &RecordId) -> Statement {
        sqlx::query(self.texts.existing.clone()).bind(id.as_bytes().as_slice())
    }

    pub(crate) fn claim(&self, id: &RecordId, claim: &Claim) -> Statement {
        bound(&self.texts.claim, claim_values(id, claim))
    }

    pub(crate) fn claim_in_transaction(&self, id: &RecordId, claim: &Claim) -> Statement {
        bound(&self.in_transaction.claim, claim_values(id, claim))
    }

    fn take_over(&self, id: &RecordId, claim: &Claim, seen: u32) -> Statement {
        claim_query(&self.texts.take_over, id, claim).bind(seen)
    }

    fn hold(&self, id: &RecordId, claim: &Claim, seen: &OwnerToken) -> Statement {
        sqlx::query(self.texts.hold.clone())
            .bind(id.as_bytes().as_slice())
            .bind(claim.fingerprint.to_bytes().to_vec())
            .bind(seen.as_bytes().as_slice())
            .bind(abandoned_code(claim.abandoned))
    }

    pub(crate) fn shorten(&self, seen: &Lease) -> Statement {
        fenced(&self.texts.shorten, seen)
    }

    pub(crate) fn shorten_expired(&self) -> Statement {
        sqlx::query(self.texts.shorten_expired.clone())
    }

    pub(crate) fn renew(&self, leases: &[Renewal]) -> Statement {
        sqlx::query(self.texts.renew.clone()).bind(renewals(leases))
    }

    /// Writes what the state machine has decided of a claim for the record that was seen.
    pub(crate) fn claim_seen(
        &self,
        id: &RecordId,
        claim: &Claim,
        seen: &Record,
        new: &Record,
    ) -> Statement {
        if new.state == RecordState::Held {
            self.hold(id, claim, &seen.owner)
        } else if new.owner != claim.owner {
            self.shorten(&Lease { id: *id, owner: seen.owner })
        } else if seen.owner == claim.owner {
            // The claim was sent again because its acknowledgment was lost.
            self.renew(&[Renewal::new(Lease { id: *id, owner: seen.owner }, claim.lease)])
        } else {
            self.take_over(id, claim, seen.attempt)
        }
    }

    pub(crate) fn note(&self, lease: &Lease, note: &Note) -> Statement {
        noting(&self.texts.note, lease, note)
    }

    pub(crate) fn note_in_transaction(&self, lease: &Lease, note: &Note) -> Statement {
        noting(&self.in_transaction.note, lease, note)
    }

    pub(crate) fn complete(&self, lease: &Lease, recording: &[u8]) -> Statement {
        completing(&self.texts.complete, lease, recording)
    }

    pub(crate) fn release(&self, lease: &Lease) -> Statement {
        fenced(&self.texts.release, lease)
    }

    pub(crate) fn abandon(&self, lease: &Lease, policy: Abandoned) -> Statement {
        fenced(&self.texts.abandon, lease).bind(abandoned_code(policy))
    }

    pub(crate) fn complete_in_transaction(&self, lease: &Lease, recording: &[u8]) -> Statement {
        completing(&self.in_transaction.complete, lease, recording)
    }

    pub(crate) fn abandon_in_transaction(&self, lease: &Lease, policy: Abandoned) -> Statement {
        fenced(&self.in_transaction.abandon, lease).bind(abandoned_code(policy))
    }

    pub(crate) fn resolve_complete(&self, seen: &Lease, recording: &[u8]) -> Statement {
        completing(&self.texts.resolve_complete, seen, recording)
    }

    pub(crate) fn resolve_release(&self, seen: &Lease) -> Statement {
        fenced(&self.texts.resolve_release, seen)
    }

    pub(crate) fn purge(&self, limit: u32) -> Statement {
        sqlx::query(self.texts.purge.clone()).bind(i64::from(limit))
    }

    pub(crate) fn keep(&self, limit: u32) -> Statement {
        sqlx::query(self.texts.keep.clone()).bind(i64::from(limit))
    }

    pub(crate) fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Statement {
        let after = after.map_or(&[][..], |id| id.as_bytes());
        let statement = sqlx::query(self.texts.resumable.clone());
        statement.bind(operation.as_str()).bind(after).bind(i64::from(limit))
    }
}

fn completing(statement: &SqlStr, lease: &Lease, recording: &[u8]) -> Statement {
    bound(statement, completion_values(lease, recording))
}

fn noting(statement: &SqlStr, lease: &Lease, note: &Note) -> Statement {
    fn text(text: &Option<ShortText>) -> &str {
        text.as_deref().unwrap_or_default()
    }
    fenced(statement, lease)
        .bind(text(&note.reference))
        .bind(text(&note.progress))
        .bind(&note.step[..])
        .bind(&note.input[..])
        .bind(i64::from(note.hold))
}

pub(crate) fn claim_values<'a>(id: &'a RecordId, claim: &'a Claim) -> [Value<'a>; 8] {
    let principal = claim.principal.as_ref().map_or(&[][..], |principal| principal.as_bytes());
    [
        bytes(id.as_bytes()),
        Value::Bytes(claim.fingerprint.to_bytes().to_vec().into()),
        bytes(claim.owner.as_bytes()),
        Value::Int(sql_millis(claim.lease)),
        Value::Int(sql_millis(claim.ttl)),
        Value::Int(abandoned_code(claim.abandoned)),
        Value::Text(claim.operation.as_str()),
        bytes(principal),
    ]
}

pub(crate) fn completion_values<'a>(lease: &'a Lease, recording: &'a [u8]) -> [Value<'a>; 4] {
    let status = Value::Int(status_code(recording));
    [bytes(lease.id.as_bytes()), bytes(lease.owner.as_bytes()), bytes(recording), status]
}

fn fenced(statement: &SqlStr, lease: &Lease) -> Statement {
    sqlx::query(statement.clone())
        .bind(lease.id.as_bytes().as_slice())
        .bind(lease.owner.as_bytes().as_slice())
}

fn claim_query(statement: &SqlStr, id: &RecordId, claim: &Claim) -> Statement {
    sqlx::query(statement.clone())
        .bind(id.as_bytes().as_slice())
        .bind(claim.fingerprint.to_bytes().to_vec())
        .bind(claim.owner.as_bytes().as_slice())
        .bind(sql_millis(claim.lease))
}

/// The leases of one renewal, as JSON.
fn renewals(leases: &[Renewal]) -> String {
    let renewal = |renewal: &Renewal| {
        let [id, owner] =
            [renewal.lease.id.as_bytes().as_slice(), renewal.lease.owner.as_bytes()].map(hex);
        json!([id, owner, sql_millis(renewal.extend)])
    };
    serde_json::Value::Array(leases.iter().map(renewal).collect()).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
