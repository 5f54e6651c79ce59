//! The SQL statements, with the table's name filled in.

use sqlx::SqlStr;

use crate::sql::{
    in_transaction::{inserting, updating, without_comments},
    logged::{logged, logging},
    names::{Names, lock_bits},
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId,
    protocol::{AuditEntry, Claim, Note, Removal, Renewal, Resolution},
};
use idempotent_sql::{
    for_each_step,
    statement::{Statement, Value},
    steps::{Steps, abandoned_code, claiming, first_values, sql_millis},
};

pub(crate) mod batches;
mod insert;
mod session;

pub(crate) use self::{insert::NewRecord, session::SessionStatements};

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        Steps { $($name: include_str!(concat!(stringify!($name), ".sql")),)* }
    };
}

/// The texts of the files of the steps.
const STEPS: Steps<&str> = for_each_step!(files);

/// The texts of all files, by their names.
pub(crate) struct Texts {
    steps: Steps<String>,
    claim_batch: String,
    complete_batch: String,
    start_over: String,
    insert: String,
    insert_completed: String,
    log: String,
}

impl Texts {
    /// `of` gets the name and the text of each file.
    pub(crate) fn new(of: impl Fn(&str, &str) -> String) -> Self {
        Self {
            steps: STEPS.map(|name, text| of(name, text)),
            claim_batch: of("claim_batch", include_str!("claim_batch.sql")),
            complete_batch: of("complete_batch", include_str!("complete_batch.sql")),
            start_over: of("start_over", include_str!("start_over.sql")),
            insert: of("insert", include_str!("insert.sql")),
            insert_completed: of("insert_completed", include_str!("insert_completed.sql")),
            log: of("log", include_str!("log.sql")),
        }
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self::new(|_, text| text.to_owned())
    }
}

/// The statements of one table; the header of each file names the parameters.
pub(crate) struct Statements {
    pub(crate) names: Names,
    pub(crate) in_session: SessionStatements,
    pub(crate) steps: Steps<SqlStr>,
    pub(crate) claim_batch: SqlStr,
    pub(crate) complete_batch: SqlStr,
    start_over: SqlStr,
    /// Claims in a transaction, whose wait the caller limits.
    start_over_in_transaction: SqlStr,
    take_over_in_transaction: SqlStr,
    /// Ends of a claim in a transaction that a handler has used; see
    /// [`in_transaction`](super::in_transaction).
    insert_in_transaction: SqlStr,
    insert_completed_in_transaction: SqlStr,
    note_in_transaction: SqlStr,
    complete_in_transaction: SqlStr,
    abandon_in_transaction: SqlStr,
    /// Decisions of operators; see [`logged`](super::logged).
    resolve_complete_logged: SqlStr,
    resolve_release_logged: SqlStr,
    remove_logged: SqlStr,
}

impl Statements {
    pub(crate) fn new(names: Names, texts: &Texts) -> Self {
        let unbounded = Names { bounded: false, ..names.clone() };
        let Texts { steps, log, .. } = texts;
        let logging = |change: &str| names.filled(&logging(log, &without_comments(change)));
        Self {
            in_session: SessionStatements::new(&unbounded),
            steps: steps.map(|_, text| names.filled(text)),
            claim_batch: names.filled(&texts.claim_batch),
            complete_batch: names.filled(&texts.complete_batch),
            start_over: names.filled(&texts.start_over),
            start_over_in_transaction: unbounded.filled(&texts.start_over),
            take_over_in_transaction: unbounded.filled(&steps.take_over),
            insert_in_transaction: names.filled(&inserting(&texts.insert)),
            insert_completed_in_transaction: names.filled(&inserting(&texts.insert_completed)),
            note_in_transaction: names.filled(&updating(&steps.note)),
            complete_in_transaction: names.filled(&updating(&steps.complete)),
            abandon_in_transaction: names.filled(&updating(&steps.abandon)),
            resolve_complete_logged: logging(&steps.resolve_complete),
            resolve_release_logged: logging(&steps.resolve_release),
            remove_logged: logging(&steps.remove),
            names,
        }
    }

    pub(crate) fn claim<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        self.steps.claim(id, claim).with_values([Value::Int(lock_bits(id))])
    }

    pub(crate) fn start_over<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: &'a OwnerToken,
    ) -> Statement<'a> {
        starting_over(&self.start_over, id, claim, (claim.abandoned, seen))
    }

    pub(crate) fn take_over<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: u32,
    ) -> Statement<'a> {
        let policy = Value::Int(abandoned_code(claim.abandoned));
        self.steps.take_over(id, claim, seen).with_values([policy])
    }

    /// [`start_over`](Self::start_over) or [`take_over`](Self::take_over), in a transaction. Here,
    /// and in [`insert_in_transaction`](Self::insert_in_transaction), the policy of the record is
    /// "hold". Only a `COMMIT` of the handler makes a claim visible that is not completed, and with
    /// it the effects: if the process dies then, the handler must not run again.
    pub(crate) fn replace_in_transaction<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        (seen, expired): (&'a Record, bool),
    ) -> Statement<'a> {
        let policy = Abandoned::Hold;
        if expired {
            let text = &self.start_over_in_transaction;
            starting_over(text, id, claim, (policy, &seen.owner))
        } else {
            let taking_over = self.steps.take_over(id, claim, seen.attempt);
            taking_over
                .with_text(&self.take_over_in_transaction)
                .with_values([Value::Int(abandoned_code(policy))])
        }
    }

    pub(crate) fn renew<'a>(&'a self, leases: &'a [Renewal]) -> Statement<'a> {
        let ids = leases.iter().map(|renewal| renewal.lease.id.as_bytes().as_slice()).collect();
        let owners =
            leases.iter().map(|renewal| renewal.lease.owner.as_bytes().as_slice()).collect();
        let extends = leases.iter().map(|renewal| sql_millis(renewal.extend)).collect();
        let values = vec![Value::ByteArrays(ids), Value::ByteArrays(owners), Value::Ints(extends)];
        Statement::new(&self.steps.renew, values)
    }

    /// Resolves a held record, and logs that.
    pub(crate) fn resolve<'a>(
        &'a self,
        seen: &'a Lease,
        resolution: &'a Resolution,
        audit: &'a AuditEntry,
    ) -> Statement<'a> {
        match resolution {
            Resolution::Complete(recording) => {
                let completing = self.steps.resolve_complete(seen, recording);
                logged(&self.resolve_complete_logged, completing, audit)
            }
            Resolution::Release => {
                let releasing = self.steps.resolve_release(seen);
                logged(&self.resolve_release_logged, releasing, audit)
            }
        }
    }

    /// Removes the record that was seen, and logs that.
    pub(crate) fn remove<'a>(
        &'a self,
        seen: &'a Lease,
        removal: &Removal,
        audit: &'a AuditEntry,
    ) -> Statement<'a> {
        logged(&self.remove_logged, self.steps.remove(seen, removal), audit)
    }

    pub(crate) fn insert_in_transaction<'a>(
        &'a self,
        new: &'a NewRecord,
        token: i64,
    ) -> Statement<'a> {
        new.insert(&self.insert_in_transaction).with_values([Value::Int(token)])
    }

    pub(crate) fn insert_completed_in_transaction<'a>(
        &'a self,
        new: &'a NewRecord,
        recording: &'a [u8],
        token: i64,
    ) -> Statement<'a> {
        let text = &self.insert_completed_in_transaction;
        new.insert_completed(text, recording).with_values([Value::Int(token)])
    }

    pub(crate) fn note_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        note: &'a Note,
        token: i64,
    ) -> Statement<'a> {
        let noting = self.steps.note(lease, note);
        noting.with_text(&self.note_in_transaction).with_values([Value::Int(token)])
    }

    pub(crate) fn complete_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        recording: &'a [u8],
        token: i64,
    ) -> Statement<'a> {
        let completing = self.steps.complete(lease, recording);
        completing.with_text(&self.complete_in_transaction).with_values([Value::Int(token)])
    }

    pub(crate) fn abandon_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        policy: Abandoned,
        token: i64,
    ) -> Statement<'a> {
        let abandoning = self.steps.abandon(lease, policy);
        abandoning.with_text(&self.abandon_in_transaction).with_values([Value::Int(token)])
    }
}

fn starting_over<'a>(
    text: &'a SqlStr,
    id: &'a RecordId,
    claim: &'a Claim,
    (policy, seen): (Abandoned, &'a OwnerToken),
) -> Statement<'a> {
    claiming(text, id, claim)
        .with_values(first_values(claim, policy))
        .with_values([Value::bytes(seen.as_bytes())])
}

#[cfg(test)]
mod tests;
