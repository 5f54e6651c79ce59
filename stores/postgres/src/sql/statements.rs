//! The SQL statements, with the table's name filled in.

use std::borrow::Cow;

use sqlx::SqlStr;

use crate::{
    sql::in_transaction::{inserting, updating},
    sql::names::{Names, lock_bits},
    sql::statement::{Statement, Value},
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, ShortText,
    protocol::{Claim, Note, Renewal},
};
use idempotent_sql::{abandoned_code, sql_millis, status_code};

mod batches;
mod insert;
mod session;

pub(crate) use self::{insert::NewRecord, session::SessionStatements};

/// The text of a file, by its name.
macro_rules! text {
    ($name:ident) => {
        include_str!(concat!(stringify!($name), ".sql"))
    };
}

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// One statement for each atomic step; the header of its file names the parameters.
        pub(crate) struct Statements {
            pub(crate) names: Names,
            pub(crate) in_session: SessionStatements,
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
            $($name: SqlStr,)*
        }

        /// The texts of the files, by their names.
        pub(crate) struct Texts {
            insert: Cow<'static, str>,
            insert_completed: Cow<'static, str>,
            $($name: Cow<'static, str>,)*
        }

        impl Default for Texts {
            fn default() -> Self {
                Self::new(|_, text| Cow::Borrowed(text))
            }
        }

        impl Texts {
            /// `of` gets the name and the text of each file.
            pub(crate) fn new(of: impl Fn(&str, &'static str) -> Cow<'static, str>) -> Self {
                Self {
                    insert: of("insert", text!(insert)),
                    insert_completed: of("insert_completed", text!(insert_completed)),
                    $($name: of(stringify!($name), text!($name)),)*
                }
            }
        }

        impl Statements {
            pub(crate) fn new(names: Names, texts: &Texts) -> Self {
                let insert_in_transaction = names.filled(&inserting(&texts.insert));
                let insert_completed_in_transaction =
                    names.filled(&inserting(&texts.insert_completed));
                let note_in_transaction = names.filled(&updating(&texts.note));
                let complete_in_transaction = names.filled(&updating(&texts.complete));
                let abandon_in_transaction = names.filled(&updating(&texts.abandon));
                let unbounded = Names { bounded: false, ..names.clone() };
                let start_over_in_transaction = unbounded.filled(&texts.start_over);
                let take_over_in_transaction = unbounded.filled(&texts.take_over);
                $(let $name = names.filled(&texts.$name);)*
                let in_session =
                    SessionStatements::new(&names, &unbounded.filled(&texts.existing));
                Self {
                    in_session,
                    names,
                    start_over_in_transaction,
                    take_over_in_transaction,
                    insert_in_transaction,
                    insert_completed_in_transaction,
                    note_in_transaction,
                    complete_in_transaction,
                    abandon_in_transaction,
                    $($name,)*
                }
            }
        }
    };
}

statements! {
    read, existing, claim, claim_batch, start_over, take_over, hold, shorten, renew, note, complete,
    complete_batch, release, abandon, resolve_complete, resolve_release, purge, keep,
    shorten_expired, resumable,
}

impl Statements {
    pub(crate) fn read<'a>(&'a self, id: &'a RecordId) -> Statement<'a> {
        Statement::new(&self.read, vec![bytes(id.as_bytes())])
    }

    pub(crate) fn existing<'a>(&'a self, id: &'a RecordId) -> Statement<'a> {
        Statement::new(&self.existing, vec![bytes(id.as_bytes())])
    }

    pub(crate) fn claim<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a> {
        let mut values = claim_values(id, claim, first_values(claim, claim.abandoned));
        values.push(Value::Int(lock_bits(id)));
        Statement::confidential(&self.claim, values)
    }

    pub(crate) fn start_over<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: &'a OwnerToken,
    ) -> Statement<'a> {
        let values = start_over_values(id, claim, (claim.abandoned, seen));
        Statement::confidential(&self.start_over, values)
    }

    pub(crate) fn take_over<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: u32,
    ) -> Statement<'a> {
        let more = [Value::Int(i64::from(seen)), abandoned(claim.abandoned)];
        Statement::confidential(&self.take_over, claim_values(id, claim, more))
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
        let (text, values) = if expired {
            let values = start_over_values(id, claim, (Abandoned::Hold, &seen.owner));
            (&self.start_over_in_transaction, values)
        } else {
            let more = [Value::Int(i64::from(seen.attempt)), abandoned(Abandoned::Hold)];
            (&self.take_over_in_transaction, claim_values(id, claim, more))
        };
        Statement::confidential(text, values)
    }

    pub(crate) fn hold<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: &'a OwnerToken,
    ) -> Statement<'a> {
        Statement::confidential(
            &self.hold,
            vec![
                bytes(id.as_bytes()),
                fingerprint(claim),
                bytes(seen.as_bytes()),
                abandoned(claim.abandoned),
            ],
        )
    }

    pub(crate) fn shorten<'a>(&'a self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.shorten, seen, [])
    }

    pub(crate) fn shorten_expired(&self) -> Statement<'_> {
        Statement::by_index(&self.shorten_expired, Vec::new())
    }

    pub(crate) fn renew<'a>(&'a self, leases: &'a [Renewal]) -> Statement<'a> {
        let ids = leases.iter().map(|renewal| renewal.lease.id.as_bytes().as_slice()).collect();
        let owners =
            leases.iter().map(|renewal| renewal.lease.owner.as_bytes().as_slice()).collect();
        let extends = leases.iter().map(|renewal| sql_millis(renewal.extend)).collect();
        Statement::new(
            &self.renew,
            vec![Value::ByteArrays(ids), Value::ByteArrays(owners), Value::Ints(extends)],
        )
    }

    pub(crate) fn note<'a>(&'a self, lease: &'a Lease, note: &'a Note) -> Statement<'a> {
        Statement { confidential: true, ..fenced(&self.note, lease, note_values(note)) }
    }

    pub(crate) fn note_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        note: &'a Note,
        token: i64,
    ) -> Statement<'a> {
        let mut statement = fenced(&self.note_in_transaction, lease, note_values(note));
        statement.values.push(Value::Int(token));
        statement
    }

    pub(crate) fn complete<'a>(&'a self, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
        completion(&self.complete, lease, recording)
    }

    pub(crate) fn complete_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        recording: &'a [u8],
        token: i64,
    ) -> Statement<'a> {
        let status = Value::Int(status_code(recording));
        fenced(&self.complete_in_transaction, lease, [bytes(recording), status, Value::Int(token)])
    }

    pub(crate) fn abandon_in_transaction<'a>(
        &'a self,
        lease: &'a Lease,
        policy: Abandoned,
        token: i64,
    ) -> Statement<'a> {
        fenced(
            &self.abandon_in_transaction,
            lease,
            [Value::Int(abandoned_code(policy)), Value::Int(token)],
        )
    }

    pub(crate) fn release<'a>(&'a self, lease: &'a Lease) -> Statement<'a> {
        fenced(&self.release, lease, [])
    }

    pub(crate) fn abandon<'a>(&'a self, lease: &'a Lease, policy: Abandoned) -> Statement<'a> {
        fenced(&self.abandon, lease, [Value::Int(abandoned_code(policy))])
    }

    pub(crate) fn resolve_complete<'a>(
        &'a self,
        seen: &'a Lease,
        recording: &'a [u8],
    ) -> Statement<'a> {
        completion(&self.resolve_complete, seen, recording)
    }

    pub(crate) fn resolve_release<'a>(&'a self, seen: &'a Lease) -> Statement<'a> {
        fenced(&self.resolve_release, seen, [])
    }

    pub(crate) fn purge(&self, limit: u32) -> Statement<'_> {
        Statement::by_index(&self.purge, vec![Value::Int(i64::from(limit))])
    }

    pub(crate) fn keep(&self, limit: u32) -> Statement<'_> {
        Statement::by_index(&self.keep, vec![Value::Int(i64::from(limit))])
    }

    pub(crate) fn resumable<'a>(
        &'a self,
        operation: &'a ShortText,
        after: Option<&'a RecordId>,
        limit: u32,
    ) -> Statement<'a> {
        let after = after.map_or(&[][..], |id| id.as_bytes());
        let values = vec![bytes(operation.as_bytes()), bytes(after), Value::Int(i64::from(limit))];
        Statement::new(&self.resumable, values)
    }
}

fn principal(claim: &Claim) -> &[u8] {
    claim.principal.as_ref().map_or(&[], |principal| principal.as_bytes())
}

fn bytes(bytes: &[u8]) -> Value<'_> {
    Value::Bytes(Cow::Borrowed(bytes))
}

fn fingerprint(claim: &Claim) -> Value<'static> {
    Value::Bytes(claim.fingerprint.to_bytes().to_vec().into())
}

/// The values of the first claim of a key, after those of every claim.
fn first_values(claim: &Claim, policy: Abandoned) -> [Value<'_>; 4] {
    [
        Value::Int(sql_millis(claim.ttl)),
        abandoned(policy),
        bytes(claim.operation.as_bytes()),
        bytes(principal(claim)),
    ]
}

fn start_over_values<'a>(
    id: &'a RecordId,
    claim: &'a Claim,
    (policy, seen): (Abandoned, &'a OwnerToken),
) -> Vec<Value<'a>> {
    let mut values = claim_values(id, claim, first_values(claim, policy));
    values.push(bytes(seen.as_bytes()));
    values
}

fn abandoned(policy: Abandoned) -> Value<'static> {
    Value::Int(abandoned_code(policy))
}

fn claim_values<'a, const N: usize>(
    id: &'a RecordId,
    claim: &'a Claim,
    more: [Value<'a>; N],
) -> Vec<Value<'a>> {
    let owner = bytes(claim.owner.as_bytes());
    let first =
        [bytes(id.as_bytes()), fingerprint(claim), owner, Value::Int(sql_millis(claim.lease))];
    first.into_iter().chain(more).collect()
}

fn fenced<'a, const N: usize>(
    text: &'a SqlStr,
    lease: &'a Lease,
    more: [Value<'a>; N],
) -> Statement<'a> {
    let first = [bytes(lease.id.as_bytes()), bytes(lease.owner.as_bytes())];
    Statement::new(text, first.into_iter().chain(more).collect())
}

fn note_values<'a>(note: &'a Note) -> [Value<'a>; 5] {
    let text = |text: &'a Option<ShortText>| bytes(text.as_deref().unwrap_or_default().as_bytes());
    [
        text(&note.reference),
        text(&note.progress),
        bytes(&note.step),
        bytes(&note.input),
        Value::Int(note.hold.into()),
    ]
}

fn completion<'a>(text: &'a SqlStr, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a> {
    let status = Value::Int(status_code(recording));
    Statement { confidential: true, ..fenced(text, lease, [bytes(recording), status]) }
}

#[cfg(test)]
mod tests;
