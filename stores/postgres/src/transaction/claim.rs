//! Claims that are part of a transaction.

use std::{pin::pin, time::Duration};

use sqlx::{PgConnection, Row as _, postgres::PgRow};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    claim::alone::{MAX_ROUNDS, claimed, rejection_without_write, write_claim},
    connect::open_transaction::response_mismatch,
    engine::{Engine, Resend},
    error::{NAME, PgErrorKind, error_kind, waited_for_a_record, waited_for_an_existing_record},
    server::Isolation,
    sql::statements::NewRecord,
    transaction::{
        begin::{Seen, begin_locked},
        handle::PgTransaction,
        marked::MarkedTransaction,
    },
};
use idempotent_core::{
    Lease, Record, RecordId, StoreError,
    clock::Timestamp,
    protocol::{Claim, ClaimOutcome, Rejection, Renewal},
    store::TransactionClaim,
    transition::{self, Change},
};
use idempotent_sql::{ClaimContention, PooledConnection};

/// How long a claim waits for one of the store's connections before it reads the record.
const READ_AFTER: Duration = Duration::from_millis(50);
/// How long it waits for this read. In a session of the application, the server does not limit the
/// wait for a locked table; it limits that of the transaction, which begins next.
const READ_LIMIT: Duration = Duration::from_millis(500);

/// The first pause between two claims of a key that another transaction has locked, on average; it
/// doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// The outcome of one round of a claim.
enum Round {
    Done(TransactionClaim),
    /// Another transaction has the lock of the key, or of its record.
    Locked,
    /// A concurrent transaction changed the record first.
    Retry,
    /// The connection lacked a statement, or had one from before a migration.
    Stale(sqlx::Error),
}

/// Claims a key in a new transaction. Waits this long for another transaction with the key.
pub(crate) async fn claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    max_wait: Duration,
) -> Result<TransactionClaim, StoreError> {
    let deadline = Instant::now() + max_wait;
    let (mut rounds, mut pause) = (0, FIRST_PAUSE);
    while rounds < MAX_ROUNDS {
        let connection = match connection_or_rejection(engine, id, claim).await? {
            Ok(connection) => connection,
            Err(rejection) => return Ok(TransactionClaim::Rejected(rejection)),
        };
        match round(engine, connection, id, claim).await? {
            Round::Done(claimed) => return Ok(claimed),
            Round::Retry => rounds += 1,
            // Any number of an application's connections may be stale.
            Round::Stale(error) => {
                rounds += 1;
                if rounds == MAX_ROUNDS {
                    return Err(engine.store_error("claim", error));
                }
            }
            // Handlers can use the connection during the pause.
            Round::Locked => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(TransactionClaim::Rejected(Rejection::IN_FLIGHT));
                }
                sleep(left.min(pause.mul_f64(0.5 + fastrand::f64()))).await;
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
    }
    Err(StoreError::transient(NAME, "claim", ClaimContention))
}

/// Returns a connection for a transaction, or why a claim is rejected that needs no write: on
/// the application's connections a read takes fewer round trips than beginning a transaction,
/// and it does not wait for long for handlers that use all of the store's own.
async fn connection_or_rejection(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
) -> Result<Result<PooledConnection<PgConnection>, Rejection>, StoreError> {
    let connections = &engine.pools.transactions;
    let mut connection = pin!(connections.get());
    if connections.is_own()
        && let Ok(connection) = timeout(READ_AFTER, &mut connection).await
    {
        return connection.map(Ok).map_err(|error| engine.store_error("claim", error));
    }
    let read = timeout(READ_LIMIT, Box::pin(rejection_without_write(engine, id, claim))).await;
    if let Ok(read) = read
        && let Some(rejection) = read?
    {
        return Ok(Err(rejection));
    }
    connection.await.map(Ok).map_err(|error| engine.store_error("claim", error))
}

/// Begins a transaction, takes the lock of the key, and then looks for its record in a statement of
/// its own, which sees what was committed before the transaction took the lock.
///
/// A key without a record gets one when the attempt is completed. Processes of releases that
/// take no lock insert the record first; then the completion inserts nothing, and is fenced.
async fn round(
    engine: &Engine,
    connection: PooledConnection<PgConnection>,
    id: &RecordId,
    claim: &Claim,
) -> Result<Round, StoreError> {
    let locking = match begin_locked(engine, connection, id).await {
        Ok(locking) => locking,
        Err(error) => return round_of(engine, error),
    };
    let Some(mut transaction) = locking.transaction else {
        // The other transaction may be that of a replay; then the key has a record.
        if locking.seen.is_some_and(|seen| !seen.found) {
            return Ok(Round::Locked);
        }
        let rejection = Box::pin(rejection_without_write(engine, id, claim)).await?;
        return Ok(rejection.map_or(Round::Locked, rejected));
    };
    let new = |at| Some(NewRecord { id: *id, claim: claim.clone(), at });
    if let Some(Seen { found: false, at }) = locking.seen {
        return Ok(granted(transaction, new(at), 1));
    }
    let read = match Box::pin(read_behind_lock(engine, &mut transaction, id)).await {
        Ok(rows) => claimed(&rows)?,
        Err(error) => return failed_round(engine, transaction, error).await,
    };
    let (record, now) = match read {
        Some((Some(record), now)) => (record, now),
        Some((None, at)) => return Ok(granted(transaction, new(at), 1)),
        None => return Err(engine.store_error("claim", response_mismatch())),
    };
    Box::pin(claim_existing(engine, transaction, (id, claim), (record, now))).await
}

/// Reads the record in the transaction, or elsewhere if the transaction's only snapshot is
/// older than its lock.
async fn read_behind_lock(
    engine: &Engine,
    transaction: &mut MarkedTransaction,
    id: &RecordId,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let existing = engine.try_statements().await?.steps.existing(id);
    if engine.pools.server.settings.isolation == Isolation::READ_COMMITTED {
        transaction.fetch(existing).await
    } else {
        engine.try_execute_on(&engine.pools.steps, &existing, Resend::Always).await
    }
}

async fn claim_existing(
    engine: &Engine,
    transaction: MarkedTransaction,
    (id, claim): (&RecordId, &Claim),
    (record, now): (Record, Timestamp),
) -> Result<Round, StoreError> {
    let attempt = match transition::claim(Some(&record), claim, now) {
        (_, ClaimOutcome::Granted { attempt }) => attempt,
        (change, ClaimOutcome::Rejected(rejection)) => {
            transaction.roll_back_empty().await;
            let Change::Put(new) = change else { return Ok(rejected(rejection)) };
            // A claim that is not granted is written outside the transaction.
            let write = (&record, false, &new);
            return match write_claim(engine, id, claim, write, &mut false).await {
                Ok(true) => Ok(rejected(rejection)),
                Ok(false) => Ok(Round::Retry),
                Err(error) => round_of(engine, error),
            };
        }
    };
    let expired = record.is_expired(now);
    if record.owner == claim.owner && !expired {
        return renew(engine, transaction, (id, claim), attempt).await;
    }
    replace(engine, transaction, (id, claim), ((&record, expired), attempt)).await
}

/// Between the read and the write another process may change the record; the statement, which
/// repeats every guard and names what was read, then changes nothing (case
/// `one_of_many_concurrent_takeovers_wins`).
async fn replace(
    engine: &Engine,
    mut transaction: MarkedTransaction,
    (id, claim): (&RecordId, &Claim),
    (seen, attempt): ((&Record, bool), u32),
) -> Result<Round, StoreError> {
    let statements = engine.statements("claim").await?;
    let statement = statements.replace_in_transaction(id, claim, seen);
    match transaction.write(statement).await {
        Ok(rows) if rows.is_empty() => {
            transaction.roll_back_empty().await;
            Ok(Round::Retry)
        }
        Ok(_) => replaced(engine, transaction, attempt).await,
        Err(error) => failed_round(engine, transaction, error).await,
    }
}

/// Renews a claim that was sent again because its acknowledgment was lost. If another
/// transaction has locked the record, such as the same claim sent a third time, the key is in
/// flight.
async fn renew(
    engine: &Engine,
    mut transaction: MarkedTransaction,
    (id, claim): (&RecordId, &Claim),
    attempt: u32,
) -> Result<Round, StoreError> {
    let renewal = [Renewal::new(Lease { id: *id, owner: claim.owner }, claim.lease)];
    let statement = engine.statements("claim").await?.renew(&renewal);
    let rows = match transaction.write(statement).await {
        Ok(rows) => rows,
        Err(error) => return failed_round(engine, transaction, error).await,
    };
    let renewed = rows.first().map(|row| row.try_get("renewed")).transpose();
    match renewed.map_err(|error| engine.store_error("claim", error))? {
        Some(true) => replaced(engine, transaction, attempt).await,
        Some(false) => {
            transaction.roll_back_empty().await;
            Ok(rejected(Rejection::IN_FLIGHT))
        }
        None => {
            transaction.roll_back_empty().await;
            Ok(Round::Retry)
        }
    }
}

async fn failed_round(
    engine: &Engine,
    mut transaction: MarkedTransaction,
    error: sqlx::Error,
) -> Result<Round, StoreError> {
    transaction.close_if_unusable(&error);
    if error_kind(&error) != PgErrorKind::NoResponse {
        transaction.roll_back_empty().await;
    }
    if waited_for_an_existing_record(&error) {
        return Ok(Round::Locked);
    }
    let kind = error_kind(&error);
    if matches!(kind, PgErrorKind::StaleConnections | PgErrorKind::PoolerInterference) {
        return Ok(Round::Stale(error));
    }
    round_of(engine, error)
}

/// Grants a claim that has written its record: the savepoint now follows it.
async fn replaced(
    engine: &Engine,
    mut transaction: MarkedTransaction,
    attempt: u32,
) -> Result<Round, StoreError> {
    transaction.restore_settings().await.map_err(|error| engine.store_error("claim", error))?;
    Ok(granted(transaction, None, attempt))
}

fn round_of(engine: &Engine, error: sqlx::Error) -> Result<Round, StoreError> {
    if waited_for_a_record(&error) {
        Ok(Round::Locked)
    } else if error_kind(&error) == PgErrorKind::Conflict {
        Ok(Round::Retry)
    } else {
        Err(engine.store_error("claim", error))
    }
}

fn granted(transaction: MarkedTransaction, new: Option<NewRecord>, attempt: u32) -> Round {
    let transaction = Box::new(PgTransaction::new(transaction, new));
    Round::Done(TransactionClaim::Granted { attempt, transaction })
}

fn rejected(rejection: Rejection) -> Round {
    Round::Done(TransactionClaim::Rejected(rejection))
}
