//! The statements that a session keeps prepared by SQL, so that they can be executed in the message
//! that begins a transaction. Planning them anew would cost the server more than that message.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::sql::{
    names::{Names, lock_bits},
    statement::write_bytes,
};
use idempotent_core::RecordId;

/// Takes the lock of a key unless another transaction has it.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock($1 # {locked_table}) AS locked";
/// Whether a key has a record, and the time. Each column of a statement costs the server when it is
/// executed, so the columns of the record are read only if there is one.
const LOOK: &str = "SELECT {now} AS now, r.id IS NOT NULL AS found FROM (SELECT) AS always \
                    LEFT JOIN {schema}\"{table}\" AS r ON r.id = $1";

/// The statements of one table.
pub(crate) struct SessionStatements {
    /// Distinguishes the statements of different tables in one session.
    pub(crate) table: u64,
    pub(crate) prepare: String,
}

impl SessionStatements {
    pub(super) fn new(names: &Names) -> Self {
        let (lock, look) = (names.fill(LOCK), names.fill(LOOK));
        let mut hasher = DefaultHasher::new();
        (&lock, &look).hash(&mut hasher);
        let table = hasher.finish();
        let prepare = format!(
            "PREPARE idempotent_lock_{table:x} (bigint) AS {lock}; \
             PREPARE idempotent_look_{table:x} (bytea) AS {look}"
        );
        Self { table, prepare }
    }

    /// Executes both: the lock first, so that the snapshot of the second is newer.
    pub(crate) fn lock_and_look(&self, id: &RecordId) -> String {
        let Self { table, .. } = self;
        let mut text = format!("EXECUTE idempotent_lock_{table:x}({}); ", lock_bits(id));
        text.push_str(&format!("EXECUTE idempotent_look_{table:x}("));
        write_bytes(&mut text, id.as_bytes());
        text.push(')');
        text
    }
}
