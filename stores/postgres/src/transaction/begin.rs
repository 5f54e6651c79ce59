//! Beginning transactions, with or without a claim. The values of a claim are never part of a
//! statement's text, because the server logs the text of a statement that waits in vain for a lock.

use std::{mem, sync::Arc};

use sqlx::{AssertSqlSafe, PgConnection, Row as _, SqlSafeStr, postgres::PgRow};

use crate::{
    connect::open_transaction::{OpenTransaction, response_mismatch},
    engine::Engine,
    error::{PgErrorKind, error_class, error_kind, is_unusable},
    server::{Isolation, Server, timeouts::RESPONSE_TIMEOUT},
    sql::{
        mark::{savepoint, set_mark, set_mark_and_bound},
        statements::SessionStatements,
    },
    transaction::{
        handle::PgTransaction,
        marked::{LockOf, MarkedTransaction},
        settings::{BOUND, CLEAN, GUARD, reset_after_claim, set_for_claim},
        token::TransactionToken,
    },
};
use idempotent_core::{RecordId, StoreError, clock::Timestamp, store::Effect};
use idempotent_sql::PooledConnection;

/// The name of the table in a statement.
const TABLE: &str = r#"{schema}"{table}""#;

/// What a transaction that tries to take the lock of a key has found.
pub(super) struct Locking {
    /// `None` if another transaction has the lock.
    pub(super) transaction: Option<MarkedTransaction>,
    /// What the message that took the lock has then seen of the record, if it has looked.
    pub(super) seen: Option<Seen>,
}

/// Whether a key has a record, and when the store has looked.
pub(super) struct Seen {
    pub(super) found: bool,
    pub(super) at: Timestamp,
}

/// Begins a transaction without a claim.
pub(crate) async fn begin(engine: &Engine) -> Result<PgTransaction, StoreError> {
    let begun = begin_unlocked(engine).await.map_err(|error| engine.store_error("begin", error))?;
    Ok(PgTransaction::new(begun, None))
}

async fn begin_unlocked(engine: &Engine) -> Result<MarkedTransaction, sqlx::Error> {
    let number = TransactionToken::new().0;
    let lock = format!("; SELECT pg_advisory_xact_lock({number}); SAVEPOINT {}", savepoint());
    let begin = async |connection| {
        let (open, begun) = open(engine, connection, &lock, None).await?;
        checked(open, begun).await.map(|(open, _)| open)
    };
    let statements = engine.try_statements().await?;
    let connection = engine.pools.transactions.get().await?;
    let open = begin_retrying(engine, connection, begin).await?;
    Ok(MarkedTransaction::new(&engine.pools, open, statements, LockOf::Transaction(number)))
}

/// Begins a transaction and takes the lock of a key in it, unless another transaction has it.
pub(super) async fn begin_locked(
    engine: &Engine,
    connection: PooledConnection<PgConnection>,
    id: &RecordId,
) -> Result<Locking, sqlx::Error> {
    let (server, statements) = (engine.pools.server, engine.try_statements().await?);
    // Above READ COMMITTED the snapshot of the transaction is older than its lock. The settings
    // of an application's session have to stay, which a session of the store resets.
    let looks = connection.is_own()
        && server.own_sessions
        && server.settings.hex_output
        && server.settings.isolation == Isolation::READ_COMMITTED;
    let lock = if looks {
        lock_and_look(&statements.in_session.lock_and_look(id))
    } else {
        lock(&statements.names.lock_key(id), &statements.names.fill(TABLE), server)
    };
    let begin = async |mut connection| {
        if looks {
            connection = prepared(engine, connection, &statements.in_session).await?;
        }
        let (open, rows) = open(engine, connection, "", Some(&lock)).await?;
        let (open, rows) = checked(open, rows).await?;
        if is_locked(&rows)? {
            return Ok((Some(open), rows));
        }
        open.roll_back().await;
        Ok((None, rows))
    };
    let (open, rows) = begin_retrying(engine, connection, begin).await?;
    let marked =
        |open| MarkedTransaction::new(&engine.pools, open, statements, LockOf::Record(*id));
    let seen = looks.then(|| seen(&rows)).transpose()?;
    Ok(Locking { transaction: open.map(marked), seen })
}

/// Prepares the statements once for each session.
async fn prepared(
    engine: &Engine,
    mut connection: PooledConnection<PgConnection>,
    statements: &SessionStatements,
) -> Result<PooledConnection<PgConnection>, sqlx::Error> {
    let prepared = connection.attachment::<Vec<u64>>();
    let prepared = prepared.as_deref().map_or(&[][..], Vec::as_slice);
    if prepared.contains(&statements.table) {
        return Ok(connection);
    }
    let tables = [prepared, &[statements.table]].concat();
    // The setting ends with the message, which is one transaction.
    let prepare = AssertSqlSafe(format!("{CLEAN}{BOUND}; {}", statements.prepare));
    let prepared = sqlx::raw_sql(prepare).execute(&mut *connection).await;
    if let Err(error) = prepared {
        engine.put_back(connection, Err::<(), _>(&error));
        return Err(error);
    }
    connection.attach(Arc::new(tables));
    Ok(connection)
}

/// Begins a transaction that a handler cannot commit. Executes further statements, and those
/// that lock a key, whose rows it returns. They take an advisory lock and set a savepoint; both
/// show [whether the transaction has ended](MarkedTransaction::escaped).
async fn open(
    engine: &Engine,
    connection: PooledConnection<PgConnection>,
    more: &str,
    lock: Option<&str>,
) -> Result<Opened, sqlx::Error> {
    let server = engine.pools.server;
    if !connection.is_own() {
        let set = set_mark_and_bound(server);
        let begin = AssertSqlSafe(format!("BEGIN READ WRITE; {set}; {GUARD}{more}"));
        let mut open = OpenTransaction::begin(connection, begin.into_sql_str()).await?;
        let rows = match lock {
            None => Ok(Vec::new()),
            Some(lock) => {
                let lock = AssertSqlSafe(lock.to_owned());
                sqlx::raw_sql(lock).fetch_all(open.connection_mut()).await
            }
        };
        return Ok((open, rows));
    }
    let lock = lock.map(|lock| format!("; {lock}")).unwrap_or_default();
    let begin = if server.own_sessions {
        // The session's settings apply to this message's own transaction until they are reset.
        let isolation = server.settings.isolation.0;
        let set = set_mark();
        format!("{CLEAN}BEGIN ISOLATION LEVEL {isolation}, READ WRITE; {set}; {GUARD}{more}{lock}")
    } else {
        format!("BEGIN READ WRITE; {}; {GUARD}{more}{lock}", set_mark_and_bound(server))
    };
    let mut open = OpenTransaction::by_message(connection).await?;
    let rows = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(open.connection_mut()).await;
    Ok((open, rows))
}
/// Begins a transaction. Tries again with other connections if the first is broken, or if
/// handlers have dropped the statements that were prepared on it; nothing is begun then.
async fn begin_retrying<T, F>(
    engine: &Engine,
    mut connection: PooledConnection<PgConnection>,
    begin: impl Fn(PooledConnection<PgConnection>) -> F,
) -> Result<T, sqlx::Error>
where
    F: Future<Output = Result<T, sqlx::Error>> + Send,
{
    let begin = |connection| engine.pools.health.exchange(RESPONSE_TIMEOUT, begin(connection));
    let mut repeated = false;
    for _ in 0..engine.pools.transactions.max_size() {
        let error = match begin(connection).await {
            Ok(begun) => return Ok(begun),
            Err(error) => error,
        };
        let kind = error_kind(&error);
        if kind == PgErrorKind::NoResponse || !is_unusable(&error) {
            return Err(error);
        }
        engine.pools.discard_if_stale(&error);
        // Any number of pooled connections may be lost, or lack the statements.
        let lost = error_class(&error).effect == Effect::Unknown;
        if !lost && kind != PgErrorKind::PoolerInterference && mem::replace(&mut repeated, true) {
            return Err(error);
        }
        connection = engine.pools.transactions.get_verified().await?;
    }
    begin(connection).await
}

/// A transaction, and the rows of the statements with which it was begun.
type Opened = (OpenTransaction<PgConnection>, Result<Vec<PgRow>, sqlx::Error>);

/// Ends the transaction if one of the statements has failed.
async fn checked(
    open: OpenTransaction<PgConnection>,
    rows: Result<Vec<PgRow>, sqlx::Error>,
) -> Result<(OpenTransaction<PgConnection>, Vec<PgRow>), sqlx::Error> {
    let error = match rows {
        Ok(rows) => return Ok((open, rows)),
        Err(error) => error,
    };
    if error_kind(&error) == PgErrorKind::NoResponse {
        // The server may still be executing the statements.
        drop(open);
    } else if is_unusable(&error) {
        open.close();
    } else {
        open.roll_back().await;
    }
    Err(error)
}

/// Takes the lock of a key unless another transaction has it, and sets the savepoint to which the
/// handler's writes can be undone. The lock on the table, which later statements need, is waited
/// for here, where the wait is limited.
fn lock(key: &str, table: &str, server: Server) -> String {
    format!(
        "SELECT 1{}; SELECT pg_try_advisory_xact_lock({key}) AS locked; \
         LOCK TABLE {table} IN ACCESS SHARE MODE; {}",
        set_for_claim(server),
        reset_after_claim(server)
    )
}

/// The same in a session of the store, whose settings are those with which it was opened, with a
/// look whether the key has a record.
fn lock_and_look(lock_and_look: &str) -> String {
    let savepoint = savepoint();
    format!(
        "{BOUND}; {lock_and_look}; SET LOCAL lock_timeout TO DEFAULT; \
         SAVEPOINT {savepoint}"
    )
}

/// Reads whether the lock was taken.
fn is_locked(rows: &[PgRow]) -> Result<bool, sqlx::Error> {
    let locked = |row: &PgRow| row.try_get("locked").ok();
    rows.iter().find_map(locked).ok_or_else(response_mismatch)
}

/// Reads what the look at the record has returned.
fn seen(rows: &[PgRow]) -> Result<Seen, sqlx::Error> {
    let seen = |row: &PgRow| {
        let now = u64::try_from(row.try_get::<i64, _>("now").ok()?).ok()?;
        Some(Seen { found: row.try_get("found").ok()?, at: Timestamp::from_millis(now) })
    };
    rows.iter().find_map(seen).ok_or_else(response_mismatch)
}
