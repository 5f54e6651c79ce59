//! What distinguishes the transaction that the store has begun from others on the same connection.

use std::sync::LazyLock;

use crate::server::{Server, timeouts::CLIENT_CHECK_INTERVAL};

/// The value of a setting that is local to a transaction, and marks it as one that the store has
/// begun; also part of the name of its savepoint. It is random, so that no handler uses the same
/// value by accident, and the same for all transactions of the process, because a server that
/// collects statistics of its statements keeps each different text of `SET` and `SAVEPOINT`.
static MARK: LazyLock<String> = LazyLock::new(|| format!("{:x}", fastrand::u64(1..)));
static SAVEPOINT: LazyLock<String> = LazyLock::new(|| format!("idempotent_effects_{}", mark()));

/// The [`MARK`] as the text of the setting.
pub(crate) fn mark() -> &'static str {
    &MARK
}

/// The savepoint that precedes the handler's writes.
pub(crate) fn savepoint() -> &'static str {
    &SAVEPOINT
}

/// Marks the open transaction. The mark ends with the transaction: a handler can end its
/// transaction by SQL and begin another, and a completion in that one would be recorded without the
/// effects.
pub(crate) fn set_mark() -> String {
    format!("SET LOCAL idempotent.transaction = '{}'", mark())
}

/// The same, for a session that was not opened with the store's settings.
pub(crate) fn set_mark_and_bound(server: Server) -> String {
    let bound = match server.checks_clients {
        true => format!(
            "; SET LOCAL client_connection_check_interval = {}",
            CLIENT_CHECK_INTERVAL.as_millis()
        ),
        false => String::new(),
    };
    set_mark() + &bound
}
