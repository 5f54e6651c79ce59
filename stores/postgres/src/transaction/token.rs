//! Tokens that distinguish the responses to the store's own statements from those to a handler's.

use sqlx::{Row as _, postgres::PgRow};

use crate::{connect::open_transaction::response_mismatch, sql::mark::mark};

/// What a statement that names the token of a transaction has returned.
pub(super) struct Proof {
    /// Whether the open transaction is the one that the store has begun.
    pub(super) ours: bool,
    /// Whether the session has temporary tables, which the next handler would see.
    pub(super) has_temporary_tables: bool,
}

/// Identifies the responses to the store's own statements in one transaction.
#[derive(Clone, Copy)]
pub(super) struct TransactionToken(pub(super) i64);

impl TransactionToken {
    pub(super) fn new() -> Self {
        Self(fastrand::i64(1..))
    }

    /// Reads whether the open transaction has the mark, as
    /// [`in_transaction`](crate::sql::in_transaction) does.
    pub(super) fn verify(self) -> String {
        format!(
            "SELECT coalesce(current_setting('idempotent.transaction', true) = '{}', false) AS \
             ours, '{}'::bigint AS token, pg_my_temp_schema()::bigint AS temporary",
            mark(),
            self.0
        )
    }

    /// Decodes the row of a statement that names the token. The row may belong to an earlier
    /// statement of the handler.
    pub(super) fn read(self, rows: &[PgRow]) -> Result<Proof, sqlx::Error> {
        match rows {
            [row] if row.try_get::<i64, _>("token").is_ok_and(|token| token == self.0) => {
                Ok(Proof {
                    ours: row.try_get("ours")?,
                    has_temporary_tables: row.try_get::<i64, _>("temporary")? != 0,
                })
            }
            _ => Err(response_mismatch()),
        }
    }
}
