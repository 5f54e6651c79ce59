//! What tells one transaction from another on the same connection.

use sqlx::{Row as _, postgres::PgRow};

use crate::store::{
    postgres::{connect::Server, sessions::CLIENT_CHECK},
    sql::out_of_step,
};

/// What a statement that names the mark of a transaction has read.
pub(super) struct Proof {
    /// The marked transaction is the one that is open.
    pub(super) ours: bool,
    /// The session has some, which the next handler would find.
    pub(super) has_temporary_tables: bool,
}

/// What a transaction is recognised by. A handler can end it by SQL of its own and begin another; what the store then ended in that one
/// would be recorded without the effects.
#[derive(Clone, Copy)]
pub(super) struct Mark(pub(super) i64);

impl Mark {
    pub(super) fn new() -> Self {
        Self(fastrand::i64(1..))
    }

    /// The name of the savepoint after which the handler's effects are written.
    pub(super) fn savepoint(self) -> String {
        format!("idempotent_effects_{:x}", self.0)
    }

    /// Reads whether the marked transaction is the one that is open, as [`WITHIN`](crate::store::postgres::statements) does.
    pub(super) fn prove(self) -> String {
        format!(
            "SELECT coalesce(current_setting('idempotent.transaction', true) = '{0}', false) AS ours, '{0}'::bigint AS token, \
             pg_my_temp_schema()::bigint AS temporary",
            self.0
        )
    }

    /// What the one row of a statement that names the mark says. It may be the response to an earlier statement, of the handler.
    pub(super) fn read(self, rows: &[PgRow]) -> Result<Proof, sqlx::Error> {
        match rows {
            [row] if row.try_get::<i64, _>("token").is_ok_and(|token| token == self.0) => {
                Ok(Proof { ours: row.try_get("ours")?, has_temporary_tables: row.try_get::<i64, _>("temporary")? != 0 })
            }
            _ => Err(out_of_step()),
        }
    }

    /// Marks the transaction that is open. The setting ends with it, whoever ends it.
    pub(super) fn set(self) -> String {
        format!("SET LOCAL idempotent.transaction = '{}'", self.0)
    }

    /// The same in a session that was not opened with the store's settings.
    pub(super) fn set_and_bound(self, server: Server) -> String {
        let bound = match server.checks_clients {
            true => format!("; SET LOCAL client_connection_check_interval = {}", CLIENT_CHECK.as_millis()),
            false => String::new(),
        };
        self.set() + &bound
    }
}
