//! The table of the errors that a server sends.

use sqlx::postgres::PgSeverity;

use idempotent_core::store::{
    Cause::{self, Permanent, Temporary},
    ConnectionState::{self, Good, Unusable},
    Effect::{self, None as NoEffect, Unknown},
    ErrorClass,
};

/// An error to which the store has a special reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PgErrorKind {
    /// Lost against another transaction.
    Conflict,
    /// Waited too long for a lock.
    LockTimeout,
    /// There was no response in time, or the server is known to be down.
    NoResponse,
    /// The table does not exist.
    MissingTable,
    /// The prepared statement is missing or another one's: a pooler shares the session between
    /// clients, or a handler has dropped the statement.
    PoolerInterference,
    /// The other connections are presumed unusable too: their server has become a standby, or a
    /// migration has changed what the statements that were prepared on them return.
    StaleConnections,
    /// Any other error, about which its class says everything.
    Other,
}

/// `lock_not_available`: the wait for a lock exceeded `lock_timeout`.
pub(super) const LOCKED: &str = "55P03";

/// An SQLSTATE, or the first two characters of several; its kind; and the answers to the three
/// questions.
type Row = (&'static str, PgErrorKind, ErrorClass);

const fn row(
    code: &'static str,
    kind: PgErrorKind,
    effect: Effect,
    cause: Cause,
    connection: ConnectionState,
) -> Row {
    (code, kind, ErrorClass::new(effect, cause, connection))
}

/// The table of all errors that a server sends; the first row that fits applies. After an error
/// that ends its session (`FATAL`), the connection is unusable whatever its row says; and unless
/// the row names the whole code, the effect is unknown then. Any other error means that the
/// statement and its transaction had no effect.
///
/// See <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
#[rustfmt::skip]
const SQLSTATES: &[Row] = &[
    // `connection_exception`, of the server or of a pooler, which has mixed up statements if the
    // number of parameters is wrong; `transaction_resolution_unknown`.
    row("08P01", PgErrorKind::PoolerInterference, NoEffect, Permanent, Unusable),
    row("08",    PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    // `BEGIN READ WRITE` on a standby; "cached plan must not change result type".
    row("0A000", PgErrorKind::StaleConnections,   NoEffect, Temporary, Unusable),
    // `invalid_transaction_state`. The server has become a standby, or somebody has made it
    // read-only; it has ended the session of a transaction that was idle, or open, for too long.
    row("25006", PgErrorKind::StaleConnections,   NoEffect, Temporary, Unusable),
    row("25P03", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("25P04", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("25",    PgErrorKind::Other,              NoEffect, Permanent, Unusable),
    row("26000", PgErrorKind::PoolerInterference, NoEffect, Permanent, Unusable), // not prepared
    // `invalid_catalog_name`: the database does not exist while it is restored.
    row("3D000", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    // `transaction_rollback`: not serializable, a deadlock; `statement_completion_unknown`.
    row("40001", PgErrorKind::Conflict,           NoEffect, Temporary, Good),
    row("40P01", PgErrorKind::Conflict,           NoEffect, Temporary, Good),
    row("40003", PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    row("40",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `syntax_error_or_access_rule_violation`: what `check` and `migrate` report.
    row("42P01", PgErrorKind::MissingTable,       NoEffect, Permanent, Good),
    row("42P05", PgErrorKind::PoolerInterference, NoEffect, Permanent, Unusable), // prepared twice
    row("42",    PgErrorKind::Other,              NoEffect, Permanent, Good),
    // `insufficient_resources`: the disk, the memory, the connections.
    row("53300", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("53",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `object_not_in_prerequisite_state`.
    row(LOCKED,  PgErrorKind::LockTimeout,        NoEffect, Temporary, Good),
    row("55",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `operator_intervention`: the server shuts down, or crashed while it may have committed; it
    // starts up; the database was dropped; the session was idle for too long; cancelled.
    row("57P01", PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    row("57P02", PgErrorKind::Other,              Unknown,  Temporary, Unusable),
    row("57P03", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("57P04", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("57P05", PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    row("57",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `system_error`, such as a failed read; `snapshot_too_old`.
    row("58",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    row("72",    PgErrorKind::Other,              NoEffect, Temporary, Good),
    // `data_corrupted`, `index_corrupted`; `internal_error` of this session, or of a pooler.
    row("XX001", PgErrorKind::Other,              NoEffect, Permanent, Good),
    row("XX002", PgErrorKind::Other,              NoEffect, Permanent, Good),
    row("XX",    PgErrorKind::Other,              NoEffect, Temporary, Unusable),
    // A wrong password, a violated constraint, an error that a trigger raises, and so on.
    row("",      PgErrorKind::Other,              NoEffect, Permanent, Good),
];

/// Whether the session has ended with an error of this severity.
pub(super) fn ends_session(severity: PgSeverity) -> bool {
    matches!(severity, PgSeverity::Fatal | PgSeverity::Panic)
}

/// What the code and the severity of an error mean.
pub(super) fn classify_reply(code: &str, severity: PgSeverity) -> (PgErrorKind, ErrorClass) {
    let ends_session = ends_session(severity);
    // PgBouncer's own errors before it closes a connection: a client waited too long, or no session
    // could be opened.
    let code = if code == "08P01" && ends_session { "08" } else { code };
    let row = SQLSTATES.iter().find(|(prefix, ..)| code.starts_with(prefix));
    let Some(&(prefix, kind, mut class)) = row else {
        return (PgErrorKind::Other, ErrorClass::new(Unknown, Permanent, Unusable));
    };
    if ends_session {
        class.connection = Unusable;
        if prefix != code {
            class.effect = Unknown;
        }
    }
    (kind, class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_reached_by_a_code_of_its_own() {
        for &(prefix, kind, class) in SQLSTATES {
            let code = format!("{prefix:Z<5}");
            assert_eq!(classify_reply(&code, PgSeverity::Error), (kind, class), "{code}");
        }
        let rows =
            SQLSTATES.iter().map(|(prefix, ..)| prefix).collect::<std::collections::HashSet<_>>();
        assert_eq!(rows.len(), SQLSTATES.len());
    }

    #[test]
    fn after_an_error_that_ends_the_session_the_connection_is_unusable() {
        for (code, effect) in
            [("53100", Unknown), ("53300", NoEffect), ("25P03", NoEffect), ("42601", Unknown)]
        {
            let (_, class) = classify_reply(code, PgSeverity::Fatal);
            assert_eq!((class.connection, class.effect), (Unusable, effect), "{code}");
        }
        let pooler = classify_reply("08P01", PgSeverity::Fatal);
        let lost = ErrorClass::new(Unknown, Temporary, Unusable);
        assert_eq!(pooler, (PgErrorKind::Other, lost));
    }
}
