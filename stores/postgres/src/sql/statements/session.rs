//! The statements that a session keeps prepared by SQL, so that they can be executed in the message
//! that begins a transaction. Planning them anew would cost the server more than that message.

use std::hash::{DefaultHasher, Hash, Hasher};

use sqlx::SqlStr;

use crate::sql::{
    names::{Names, lock_bits},
    statement::write_bytes,
};
use idempotent_core::RecordId;

/// Takes the lock of a key unless another transaction has it.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock($1 # {locked_table}) AS locked";

/// The statements of one table.
pub(crate) struct SessionStatements {
    /// Distinguishes the statements of different tables in one session.
    pub(crate) table: u64,
    pub(crate) prepare: String,
}

impl SessionStatements {
    pub(super) fn new(names: &Names, existing: &SqlStr) -> Self {
        let (lock, existing) = (names.fill(LOCK), existing.as_str());
        let mut hasher = DefaultHasher::new();
        (&lock, existing).hash(&mut hasher);
        let table = hasher.finish();
        let prepare = format!(
            "PREPARE idempotent_lock_{table:x} (bigint) AS {lock}; \
             PREPARE idempotent_read_{table:x} (bytea) AS {existing}"
        );
        Self { table, prepare }
    }

    /// Executes both: the lock first, so that the snapshot of the read is newer.
    pub(crate) fn lock_and_read(&self, id: &RecordId) -> String {
        let Self { table, .. } = self;
        let mut text = format!("EXECUTE idempotent_lock_{table:x}({}); ", lock_bits(id));
        text.push_str(&format!("EXECUTE idempotent_read_{table:x}("));
        write_bytes(&mut text, id.as_bytes());
        text.push(')');
        text
    }
}
