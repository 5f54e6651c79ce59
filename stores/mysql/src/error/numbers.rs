//! The table of the errors that a server sends.

use idempotent_core::store::{
    Cause::{self, Permanent, Temporary},
    ConnectionState::{self, Good, Unusable},
    Effect::{self, None as NoEffect, Unknown},
    ErrorClass,
};

/// An error to which the store has a special reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// Lost against another transaction, which the server has rolled back whole.
    Conflict,
    /// The record exists.
    Exists,
    /// Another transaction has locked the record, or the key.
    Locked,
    /// There was no response in time, or the server is known to be down.
    NoResponse,
    /// The table does not exist.
    MissingTable,
    /// The user lacks a privilege.
    Denied,
    /// A statement is too large.
    PacketTooLarge,
    /// The server has no XA transactions.
    NoGuard,
    /// The other connections are presumed unusable too: their server has become a replica.
    StaleConnections,
    /// Any other error, about which its class says everything.
    Other,
}

/// A number; its kind; and the answers to the three questions.
type Row = (u16, ErrorKind, ErrorClass);

const fn row(
    number: u16,
    kind: ErrorKind,
    effect: Effect,
    cause: Cause,
    connection: ConnectionState,
) -> Row {
    (number, kind, ErrorClass::new(effect, cause, connection))
}

/// The table of the errors that a server sends. Any other error means that the statement had no
/// effect and has none later either.
///
/// See <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html> and
/// <https://mariadb.com/docs/server/reference/error-codes>.
#[rustfmt::skip]
const NUMBERS: &[Row] = &[
    // `LOCK_WAIT_TIMEOUT`; `LOCK_NOWAIT` (MySQL).
    row(1205, ErrorKind::Locked,           NoEffect, Temporary, Good),
    row(3572, ErrorKind::Locked,           NoEffect, Temporary, Good),
    // `LOCK_DEADLOCK`; `CHECKREAD`: the row has changed since the snapshot (MariaDB).
    row(1213, ErrorKind::Conflict,         NoEffect, Temporary, Good),
    row(1020, ErrorKind::Conflict,         NoEffect, Temporary, Good),
    // `DUP_ENTRY`.
    row(1062, ErrorKind::Exists,           NoEffect, Temporary, Good),
    // `OPTION_PREVENTS_STATEMENT`: read_only; `READ_ONLY_MODE`;
    // `CANT_EXECUTE_IN_READ_ONLY_TRANSACTION`; `INNODB_READ_ONLY`.
    row(1290, ErrorKind::StaleConnections, NoEffect, Temporary, Unusable),
    row(1836, ErrorKind::StaleConnections, NoEffect, Temporary, Unusable),
    row(1792, ErrorKind::StaleConnections, NoEffect, Temporary, Unusable),
    row(1874, ErrorKind::StaleConnections, NoEffect, Temporary, Unusable),
    // `NO_SUCH_TABLE`, `BAD_TABLE_ERROR`.
    row(1146, ErrorKind::MissingTable,     NoEffect, Permanent, Good),
    row(1051, ErrorKind::MissingTable,     NoEffect, Permanent, Good),
    // `TABLEACCESS_DENIED_ERROR`, `COLUMNACCESS_DENIED_ERROR`.
    row(1142, ErrorKind::Denied,           NoEffect, Permanent, Good),
    row(1143, ErrorKind::Denied,           NoEffect, Permanent, Good),
    // `NET_PACKET_TOO_LARGE`: the server closes the connection.
    row(1153, ErrorKind::PacketTooLarge,   NoEffect, Permanent, Unusable),
    // Connections: `CON_COUNT_ERROR`, `TOO_MANY_USER_CONNECTIONS`, `USER_LIMIT_REACHED`,
    // `HOST_IS_BLOCKED`, `OUT_OF_RESOURCES`, `CANT_CREATE_THREAD`.
    row(1040, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1203, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1226, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1129, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1041, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1135, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    // `SERVER_SHUTDOWN`, `NORMAL_SHUTDOWN`, `FORCING_CLOSE`, `CONNECTION_KILLED` (MariaDB),
    // `SESSION_WAS_KILLED` and `CLIENT_INTERACTION_TIMEOUT` (MySQL), `NEW_ABORTING_CONNECTION`:
    // the statement may have been committed.
    row(1053, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1077, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1080, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1927, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(3169, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(4031, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1184, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    // `NET_READ_ERROR` and others of the network, as the server sees it.
    row(1158, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1159, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1160, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1161, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    // `QUERY_INTERRUPTED`: killed, or the server stops; `STATEMENT_TIMEOUT` (MariaDB);
    // `QUERY_TIMEOUT` (MySQL).
    row(1317, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1969, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(3024, ErrorKind::Other,            NoEffect, Temporary, Good),
    // `ERROR_DURING_COMMIT`, `ERROR_DURING_ROLLBACK`.
    row(1180, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1181, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    // Of group replication: a transaction was rolled back before its commit.
    row(3100, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(3101, ErrorKind::Conflict,         NoEffect, Temporary, Good),
    // `UNKNOWN_COM_ERROR`: the node of a Galera cluster is not ready.
    row(1047, ErrorKind::StaleConnections, NoEffect, Temporary, Unusable),
    // Memory, disk and tables of the server: `OUTOFMEMORY`, `OUT_OF_SORTMEMORY`, `DISK_FULL`,
    // `RECORD_FILE_FULL`, `ERROR_ON_WRITE`, `GET_ERRNO`, `LOCK_TABLE_FULL`,
    // `TOO_MANY_CONCURRENT_TRXS`, `MAX_PREPARED_STMT_COUNT_REACHED`.
    row(1037, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1038, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1021, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1114, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1026, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1030, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1206, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1637, ErrorKind::Other,            NoEffect, Temporary, Good),
    row(1461, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    // `UNKNOWN_STMT_HANDLER`, `NEED_REPREPARE`: a pooler, or a changed table; `TABLE_DEF_CHANGED`.
    row(1243, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1615, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    row(1412, ErrorKind::Other,            NoEffect, Temporary, Good),
    // `BAD_DB_ERROR`: the database does not exist while it is restored.
    row(1049, ErrorKind::Other,            NoEffect, Temporary, Unusable),
    // Of XA transactions: it was rolled back (`RBROLLBACK`, `RBTIMEOUT`, `RBDEADLOCK`); it is not
    // in the expected state (`INVAL`, `RMFAIL`, `OUTSIDE`, `RMERR`, `DUPID`, `NOTA`).
    row(1402, ErrorKind::Conflict,         NoEffect, Temporary, Unusable),
    row(1613, ErrorKind::Conflict,         NoEffect, Temporary, Unusable),
    row(1614, ErrorKind::Conflict,         NoEffect, Temporary, Unusable),
    row(1397, ErrorKind::Other,            NoEffect, Permanent, Unusable),
    row(1398, ErrorKind::Other,            NoEffect, Permanent, Unusable),
    row(1399, ErrorKind::Other,            NoEffect, Permanent, Unusable),
    row(1400, ErrorKind::Other,            NoEffect, Permanent, Unusable),
    row(1401, ErrorKind::Other,            Unknown,  Temporary, Unusable),
    row(1440, ErrorKind::Other,            NoEffect, Permanent, Unusable),
    // `NOT_SUPPORTED_YET`, `PARSE_ERROR`: as of `XA START` on a server without it.
    row(1235, ErrorKind::NoGuard,          NoEffect, Permanent, Good),
];

/// A wrong password, a value that the table refuses, an error that a trigger raises, and so on.
const OTHER: ErrorClass = ErrorClass::new(NoEffect, Permanent, Good);

/// What the number of an error means.
pub(super) fn classify_reply(number: u16) -> (ErrorKind, ErrorClass) {
    let row = NUMBERS.iter().find(|row| row.0 == number);
    row.map_or((ErrorKind::Other, OTHER), |row| (row.1, row.2))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_number_has_one_row() {
        let numbers: HashSet<_> = NUMBERS.iter().map(|row| row.0).collect();
        assert_eq!(numbers.len(), NUMBERS.len());
        assert_eq!(classify_reply(1364), (ErrorKind::Other, OTHER));
        for &(number, kind, class) in NUMBERS {
            assert_eq!(classify_reply(number), (kind, class), "{number}");
        }
    }
}
