//! The atomic steps that every SQL store has: the list of their files, and their parameters.

use std::time::Duration;

use crate::statement::{Statement, Value};
use idempotent_core::{
    Abandoned, EncodedRecording, Lease, OwnerToken, RecordId, ShortText,
    clock::millis,
    protocol::{Claim, Note},
};

mod operators;

pub use operators::audit_values;

/// How many held records one statement of a purge marks.
pub const MARKED_PER_STATEMENT: u32 = 10_000;

/// Calls a macro with the names of the steps, which are those of their files.
#[macro_export]
macro_rules! for_each_step {
    ($macro:ident) => {
        $macro! {
            read, existing, claim, take_over, hold, shorten, renew, note, complete, release,
            abandon, resolve_complete, resolve_release, purge, keep, shorten_expired, resumable,
            watched, scan, find, remove, replace, append_history, count, audit,
            measure,
        }
    };
}

macro_rules! steps {
    ($($name:ident),* $(,)?) => {
        /// One text for each step: of its file, or with the table's name filled in. The header of
        /// the file names the parameters.
        #[derive(Clone, Debug)]
        pub struct Steps<T> {
            $(
                #[doc = concat!("The text of `", stringify!($name), ".sql`.")]
                pub $name: T,
            )*
        }

        impl<T> Steps<T> {
            /// Converts the texts; `of` gets the name and the text of each step.
            pub fn map<U>(&self, of: impl Fn(&'static str, &T) -> U) -> Steps<U> {
                Steps { $($name: of(stringify!($name), &self.$name),)* }
            }
        }
    };
}

for_each_step!(steps);

/// The parameters of the steps. What a database needs beyond them is added to the statement.
impl<T> Steps<T> {
    /// Reads a record.
    pub fn read<'a>(&'a self, id: &'a RecordId) -> Statement<'a, T> {
        Statement::new(&self.read, vec![Value::bytes(id.as_bytes())])
    }

    /// Reads what a claim is decided from.
    pub fn existing<'a>(&'a self, id: &'a RecordId) -> Statement<'a, T> {
        Statement::new(&self.existing, vec![Value::bytes(id.as_bytes())])
    }

    /// Claims a key that has no record, or whose record has expired.
    pub fn claim<'a>(&'a self, id: &'a RecordId, claim: &'a Claim) -> Statement<'a, T> {
        claiming(&self.claim, id, claim).with_values(first_values(claim, claim.abandoned))
    }

    /// Takes over the record of an attempt whose lease has expired; `seen` is its number.
    pub fn take_over<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: u32,
    ) -> Statement<'a, T> {
        claiming(&self.take_over, id, claim).with_values([Value::Int(seen.into())])
    }

    /// Holds a key whose lease has expired.
    pub fn hold<'a>(
        &'a self,
        id: &'a RecordId,
        claim: &'a Claim,
        seen: &'a OwnerToken,
    ) -> Statement<'a, T> {
        let values = vec![
            Value::bytes(id.as_bytes()),
            fingerprint(claim),
            Value::bytes(seen.as_bytes()),
            Value::Int(abandoned_code(claim.abandoned)),
        ];
        Statement::confidential(&self.hold, values)
    }

    /// Limits a lease to its length from now.
    pub fn shorten<'a>(&'a self, seen: &'a Lease) -> Statement<'a, T> {
        fenced(&self.shorten, seen)
    }

    /// The same for every record whose ttl has expired.
    pub fn shorten_expired(&self) -> Statement<'_, T> {
        Statement::by_index(&self.shorten_expired, Vec::new())
    }

    /// Adds a note.
    pub fn note<'a>(&'a self, lease: &'a Lease, note: &'a Note) -> Statement<'a, T> {
        let text = |text: &'a Option<ShortText>| Value::text(text.as_deref().unwrap_or_default());
        let values = [
            text(&note.reference),
            text(&note.progress),
            Value::bytes(&note.step),
            Value::bytes(&note.input),
            Value::Int(note.hold.into()),
        ];
        Statement { confidential: true, ..fenced(&self.note, lease).with_values(values) }
    }

    /// Completes a record.
    pub fn complete<'a>(&'a self, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a, T> {
        completing(&self.complete, lease, recording)
    }

    /// Releases a key.
    pub fn release<'a>(&'a self, lease: &'a Lease) -> Statement<'a, T> {
        fenced(&self.release, lease)
    }

    /// Abandons a record.
    pub fn abandon<'a>(&'a self, lease: &'a Lease, policy: Abandoned) -> Statement<'a, T> {
        fenced(&self.abandon, lease).with_values([Value::Int(abandoned_code(policy))])
    }

    /// Completes a held record.
    pub fn resolve_complete<'a>(
        &'a self,
        seen: &'a Lease,
        recording: &'a [u8],
    ) -> Statement<'a, T> {
        completing(&self.resolve_complete, seen, recording)
    }

    /// Releases a held record.
    pub fn resolve_release<'a>(&'a self, seen: &'a Lease) -> Statement<'a, T> {
        fenced(&self.resolve_release, seen)
    }

    /// Deletes expired records.
    pub fn purge(&self, limit: u32) -> Statement<'_, T> {
        Statement::by_index(&self.purge, vec![Value::Int(limit.into())])
    }

    /// Marks records past their ttl that are held or can become held.
    pub fn keep(&self, limit: u32) -> Statement<'_, T> {
        Statement::by_index(&self.keep, vec![Value::Int(limit.into())])
    }

    /// Finds records that can be resumed.
    pub fn resumable<'a>(
        &'a self,
        operation: &'a ShortText,
        after: Option<&'a RecordId>,
        limit: u32,
    ) -> Statement<'a, T> {
        let after = after.map_or(&[][..], |id| id.as_bytes());
        let values = vec![Value::text(operation), Value::bytes(after), Value::Int(limit.into())];
        Statement::new(&self.resumable, values)
    }
}

/// The values of the first claim of a key, after those of [every claim](claiming).
pub fn first_values(claim: &Claim, policy: Abandoned) -> [Value<'_>; 4] {
    [
        Value::Int(sql_millis(claim.ttl)),
        Value::Int(abandoned_code(policy)),
        Value::text(&claim.operation),
        Value::bytes(claim.principal.as_ref().map_or(&[], |principal| principal.as_bytes())),
    ]
}

/// A statement with the values of every claim.
pub fn claiming<'a, T>(text: &'a T, id: &'a RecordId, claim: &'a Claim) -> Statement<'a, T> {
    let mut values = Vec::with_capacity(10);
    values.extend([
        Value::bytes(id.as_bytes()),
        fingerprint(claim),
        Value::bytes(claim.owner.as_bytes()),
        Value::Int(sql_millis(claim.lease)),
    ]);
    Statement::confidential(text, values)
}

fn fingerprint(claim: &Claim) -> Value<'static> {
    Value::Bytes(claim.fingerprint.to_bytes().to_vec().into())
}

/// A statement that compares the owner.
fn fenced<'a, T>(text: &'a T, lease: &'a Lease) -> Statement<'a, T> {
    let mut values = Vec::with_capacity(7);
    values.extend([Value::bytes(lease.id.as_bytes()), Value::bytes(lease.owner.as_bytes())]);
    Statement::new(text, values)
}

fn completing<'a, T>(text: &'a T, lease: &'a Lease, recording: &'a [u8]) -> Statement<'a, T> {
    let values = [Value::bytes(recording), Value::Int(status_code(recording))];
    Statement { confidential: true, ..fenced(text, lease).with_values(values) }
}

/// A duration in milliseconds for a statement, at most 1,000 years, so that no sum with a current
/// time overflows.
pub fn sql_millis(duration: Duration) -> i64 {
    const MAX: u64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;
    i64::try_from(millis(duration).min(MAX)).unwrap_or(i64::MAX)
}

/// Encodes the column `abandoned`.
pub fn abandoned_code(abandoned: Abandoned) -> i64 {
    match abandoned {
        Abandoned::Retry => 0,
        Abandoned::Hold => 1,
    }
}

/// The status of a recording for the column `status`; 0 if it is unknown.
pub fn status_code(recording: &[u8]) -> i64 {
    EncodedRecording::status_of(recording).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_duration_overflows_the_sum_with_a_present_time() {
        assert_eq!(sql_millis(Duration::from_secs(1)), 1_000);
        assert!(sql_millis(Duration::MAX) < i64::MAX / 2);
    }
}
