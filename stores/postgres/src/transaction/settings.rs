//! The settings and the cursor of a handler's transaction.

use crate::{
    server::{
        Server,
        timeouts::{LOCK_TIMEOUT, STATEMENT_TIMEOUT},
    },
    sql::mark::savepoint,
};

/// Fails when the transaction is committed while the cursor is open, since the server then executes
/// the query of a cursor that was declared `WITH HOLD`. So a handler cannot commit its effects
/// without the record; the store closes the cursor before it commits. The server also refuses to
/// prepare such a transaction.
pub(super) const GUARD: &str = "DECLARE idempotent_guard CURSOR WITH HOLD FOR SELECT \
                     current_setting('a handler must not commit the transaction of its Tx')";
/// Closes the cursor of [`GUARD`].
pub(super) const CLOSE_GUARD: &str = "CLOSE idempotent_guard";

/// Limits the wait for a lock on the table. Records and keys are not waited for.
pub(super) const BOUND: &str = "SET LOCAL lock_timeout = '100ms'";

/// Undoes the session changes of an earlier handler. It keeps prepared statements.
pub(crate) const CLEAN: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; ";

/// The settings during a claim, whatever the role has.
fn claim_settings(server: Server) -> impl Iterator<Item = (&'static str, &'static str)> {
    [("lock_timeout", LOCK_TIMEOUT), ("statement_timeout", STATEMENT_TIMEOUT)]
        .into_iter()
        .chain(server.settings.bounds_transactions.then_some(("transaction_timeout", "0")))
}

/// Limits the waits of a claim, and saves the session's settings.
pub(super) fn set_for_claim(server: Server) -> String {
    let set = claim_settings(server).map(|(setting, value)| {
        format!(
            "; SELECT set_config('idempotent.{setting}', current_setting('{setting}'), true), \
             set_config('{setting}', '{value}', true)"
        )
    });
    set.collect()
}

/// Restores the session's settings after a claim, and sets the savepoint to which the handler's
/// writes can be undone.
pub(super) fn reset_after_claim(server: Server) -> String {
    let reset = claim_settings(server).map(|(setting, _)| {
        format!("SELECT set_config('{setting}', current_setting('idempotent.{setting}'), true); ")
    });
    format!("{}SAVEPOINT {}", reset.collect::<String>(), savepoint())
}
