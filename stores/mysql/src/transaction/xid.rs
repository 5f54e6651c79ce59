//! The name of an XA transaction, and the statements that begin and end it.
//!
//! Within an XA transaction the server refuses `COMMIT`, `ROLLBACK`, `BEGIN` and every statement
//! that would commit implicitly. Only who knows its name can end it. It is committed in one phase,
//! which prepares nothing, so that the server forgets it when the session ends.
//!
//! See <https://dev.mysql.com/doc/refman/8.4/en/xa-states.html> and
//! <https://mariadb.com/docs/server/reference/sql-statements/transactions/xa-transactions>.

/// `XAER_RMFAIL`: the statement cannot be executed in this state of the XA transaction.
pub(crate) const REFUSED: u16 = 1399;

/// The name of an XA transaction, and of the savepoints in it. It is random, so that no handler
/// can name it.
pub(crate) struct Xid(u128);

impl Xid {
    pub(crate) fn new() -> Self {
        Self(fastrand::u128(..))
    }

    /// Begins the transaction.
    pub(crate) fn start(&self) -> String {
        format!("XA START '{:032x}'", self.0)
    }

    /// Sets the savepoint to which the handler's writes can be undone, and one whose release proves
    /// that the transaction in which it was set is still open.
    pub(super) fn savepoints(&self) -> String {
        let Self(name) = self;
        format!("SAVEPOINT idempotent_effects_{name:032x}; SAVEPOINT idempotent_proof_{name:032x}")
    }

    /// Fails unless the transaction is open.
    pub(super) fn prove(&self) -> String {
        let Self(name) = self;
        format!(
            "RELEASE SAVEPOINT idempotent_proof_{name:032x}; SAVEPOINT idempotent_proof_{name:032x}"
        )
    }

    /// Undoes the handler's writes.
    pub(super) fn undo(&self) -> String {
        let Self(name) = self;
        format!(
            "ROLLBACK TO SAVEPOINT idempotent_effects_{name:032x}; \
             SAVEPOINT idempotent_proof_{name:032x}"
        )
    }

    pub(super) fn commit(&self) -> String {
        let Self(name) = self;
        format!("XA END '{name:032x}'; XA COMMIT '{name:032x}' ONE PHASE")
    }

    /// Rolls back a transaction in which no statement has failed.
    pub(crate) fn roll_back(&self) -> String {
        let Self(name) = self;
        format!("XA END '{name:032x}'; XA ROLLBACK '{name:032x}'")
    }
}
