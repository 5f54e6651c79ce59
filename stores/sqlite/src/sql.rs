//! The SQL statements, with the table's name filled in.

use serde_json::json;
use sqlx::SqlStr;

use self::repeated::RepeatedStatement;
use idempotent_core::{
    Abandoned, Lease, Record, RecordId, RecordState,
    protocol::{AuditEntry, Claim, Note, Renewal},
};
use idempotent_sql::{
    Dialect, TableName, for_each_step,
    statement::{Statement, Value, shared_text},
    steps::{Steps, audit_values, sql_millis},
};

pub(crate) mod query;
pub(crate) mod repeated;

/// Reads the connection's settings; `changed` is the number of rows that the last write changed.
pub(crate) const SETTINGS: &str = include_str!("sql/connection.sql");
const DIALECT: Dialect = Dialect {
    // Constant within a statement.
    now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    appended: "substr(history || {letter} || printf('%011x', {now}), -{characters})",
};

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        Steps { $($name: include_str!(concat!("sql/", stringify!($name), ".sql")),)* }
    };
}

/// The texts of the files.
const FILES: Steps<&str> = for_each_step!(files);

/// The statements of one table.
pub(crate) struct Statements {
    pub(crate) table: TableName,
    pub(crate) in_transaction: TransactionStatements,
    pub(crate) claim_batch: RepeatedStatement,
    pub(crate) complete_batch: RepeatedStatement,
    pub(crate) steps: Steps<SqlStr>,
    log: SqlStr,
}

/// Fills in the table's name, which [`TableName`] has validated, and the time.
pub(crate) fn filled(table: &TableName, statement: &str) -> SqlStr {
    shared_text(table.fill(statement, &DIALECT))
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
    fn new(Steps { claim, note, complete, abandon, .. }: &Steps<SqlStr>) -> Self {
        let random = fastrand::u64(..);
        let (effects, proof) =
            (format!("idempotent_effects_{random:x}"), format!("idempotent_proof_{random:x}"));
        let savepoints = format!("SAVEPOINT {effects}; SAVEPOINT {proof}");
        let proof = format!("RELEASE {proof}; SAVEPOINT {proof}");
        let ending =
            |step: &SqlStr| shared_text(format!("{proof};\n{};\n{SETTINGS}", step.as_str()));
        Self {
            begin: shared_text(format!("BEGIN IMMEDIATE; {savepoints}")),
            undo: shared_text(format!("ROLLBACK TO {effects}; RELEASE {effects}; {savepoints}")),
            verify: shared_text(format!("{proof};\n{SETTINGS}")),
            claim: shared_text(format!("{};\n{savepoints}", claim.as_str())),
            note: ending(note),
            complete: ending(complete),
            abandon: ending(abandon),
            savepoints: shared_text(savepoints),
        }
    }
}

impl Statements {
    pub(crate) fn new(table: TableName) -> Self {
        Self::of(table, |_, text| text.to_owned())
    }

    /// The statements of these texts; `text` gets the name and the text of each file.
    pub(crate) fn of(table: TableName, text: impl Fn(&str, &str) -> String) -> Self {
        let steps = FILES.map(|name, file| filled(&table, &text(name, file)));
        Self {
            in_transaction: TransactionStatements::new(&steps),
            claim_batch: RepeatedStatement::new(steps.claim.as_str(), ", "),
            complete_batch: RepeatedStatement::new(steps.complete.as_str(), "FROM "),
            log: filled(&table, &text("log", include_str!("sql/log.sql"))),
            steps,
            table,
        }
    }

    pub(crate) fn renew(&self, leases: &[Renewal]) -> Statement<'_> {
        Statement::new(&self.steps.renew, vec![Value::Text(renewals(leases).into())])
    }

    /// Adds an entry to the log of operators' decisions, with the state that the record had.
    pub(crate) fn log<'a>(&'a self, entry: &'a AuditEntry, before: String) -> Statement<'a> {
        Statement::new(&self.log, audit_values(entry)).with_values([Value::Text(before.into())])
    }

    /// Writes what the state machine has decided of a claim for the record that was seen.
    pub(crate) fn claim_seen<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        (seen, lease): (&'a Record, &'a Lease),
        new: &Record,
    ) -> Statement<'a> {
        if new.state == RecordState::Held {
            self.steps.hold(id, claim, &seen.owner)
        } else if new.owner != claim.owner {
            self.steps.shorten(lease)
        } else if seen.owner == claim.owner {
            // The claim was sent again because its acknowledgment was lost.
            self.renew(&[Renewal::new(*lease, claim.lease)])
        } else {
            self.steps.take_over(id, claim, seen.attempt)
        }
    }

    pub(crate) fn claim_in_transaction<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
    ) -> Statement<'a> {
        self.steps.claim(id, claim).with_text(&self.in_transaction.claim)
    }

    pub(crate) fn note_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        note: &'a Note,
    ) -> Statement<'a> {
        self.steps.note(lease, note).with_text(&self.in_transaction.note)
    }

    pub(crate) fn complete_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        recording: &'a [u8],
    ) -> Statement<'a> {
        self.steps.complete(lease, recording).with_text(&self.in_transaction.complete)
    }

    pub(crate) fn abandon_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        policy: Abandoned,
    ) -> Statement<'a> {
        self.steps.abandon(lease, policy).with_text(&self.in_transaction.abandon)
    }
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
