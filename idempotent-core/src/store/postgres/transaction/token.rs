//! Tokens that distinguish one transaction from another on the same connection.

use sqlx::{Row as _, postgres::PgRow};

use crate::store::{
    postgres::{lifecycle::CLIENT_CHECK_INTERVAL, server::Server},
    sql::response_mismatch,
};

/// What a statement that names the token of a transaction has returned.
pub(super) struct Proof {
    /// Whether the open transaction is the one with the token.
    pub(super) ours: bool,
    /// Whether the session has temporary tables, which the next handler would see.
    pub(super) has_temporary_tables: bool,
}

/// Identifies a transaction. A handler can end its transaction by SQL and begin another; a
/// completion in that one would be recorded without the effects.
#[derive(Clone, Copy)]
pub(super) struct TransactionToken(pub(super) i64);

impl TransactionToken {
    pub(super) fn new() -> Self {
        Self(fastrand::i64(1..))
    }

    /// The savepoint that precedes the handler's writes.
    pub(super) fn savepoint(self) -> String {
        format!("idempotent_effects_{:x}", self.0)
    }

    /// Reads whether the open transaction has this token, as
    /// [`in_transaction`](crate::store::postgres::in_transaction) does.
    pub(super) fn verify(self) -> String {
        format!(
            "SELECT \
             coalesce(current_setting('idempotent.transaction', true) = '{0}', false) AS ours, \
             '{0}'::bigint AS token, pg_my_temp_schema()::bigint AS temporary",
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

    /// Sets the token of the open transaction. The setting ends with the transaction.
    pub(super) fn set(self) -> String {
        format!("SET LOCAL idempotent.transaction = '{}'", self.0)
    }

    /// The same, for a session that was not opened with the store's settings.
    pub(super) fn set_and_bound(self, server: Server) -> String {
        let bound = match server.checks_clients {
            true => format!(
                "; SET LOCAL client_connection_check_interval = {}",
                CLIENT_CHECK_INTERVAL.as_millis()
            ),
            false => String::new(),
        };
        self.set() + &bound
    }
}
