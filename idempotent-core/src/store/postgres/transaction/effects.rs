//! What has become of a handler's effects: undone, or written outside of its transaction.

use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use super::PgTransaction;
use crate::{
    error::StoreError,
    protocol::Fence,
    store::postgres::{lifecycle::STATEMENT_GRACE, mark::savepoint, timeouts::RESPONSE_TIMEOUT},
};

/// `no_active_sql_transaction`, and `invalid_savepoint_specification`.
const WITHOUT_SAVEPOINT: [&str; 2] = ["25P01", "3B001"];

impl PgTransaction {
    /// Whether the handler has ended the transaction, and what it has written since may be
    /// committed: the session is not the store's own. The store's savepoint, whose name no handler
    /// uses, exists only in the transaction that the store has begun, even if a statement has
    /// failed in it.
    pub(super) async fn escaped(&mut self) -> bool {
        if self.read_only_after || !self.unverified || self.open.is_none() {
            return false;
        }
        // As in `roll_back`.
        match timeout(STATEMENT_GRACE, self.roll_back_to_savepoint()).await {
            Ok(Err(sqlx::Error::Database(error))) => {
                error.code().is_some_and(|code| WITHOUT_SAVEPOINT.contains(&code.as_ref()))
            }
            Ok(Ok(()) | Err(_)) | Err(_) => false,
        }
    }

    pub(super) async fn roll_back_to_savepoint(&mut self) -> Result<(), sqlx::Error> {
        let (health, undo) =
            (self.health.clone(), format!("ROLLBACK TO SAVEPOINT {}", savepoint()));
        self.inserted = false;
        let undo = sqlx::raw_sql(AssertSqlSafe(undo)).execute(self.connection_mut());
        health.exchange(RESPONSE_TIMEOUT, undo).await.map(drop)
    }

    /// Whether a savepoint of the handler that contained the first note was undone, and the new
    /// record with it. The transaction still has the lock of the key, so the record can be inserted
    /// again.
    pub(super) fn is_undone(&mut self, changed: &Result<Fence, StoreError>) -> bool {
        let undone = self.inserted && matches!(changed, Ok(Fence::Fenced));
        self.inserted &= !undone;
        undone
    }
}
