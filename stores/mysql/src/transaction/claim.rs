//! Claims that are part of a transaction.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    claim::alone::{MAX_ROUNDS, is_locked, write_claim},
    engine::Engine,
    error::{ErrorKind, NAME, error_kind},
    sql::positional::literal,
    transaction::{begin::begin_with, handle::MySqlTransaction},
};
use idempotent_core::{
    Record, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome, Rejection},
    store::TransactionClaim,
    transition::{self, Change},
};
use idempotent_sql::ClaimContention;

/// The first pause between two claims of a key that another transaction has locked, on average; it
/// doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);
/// How much longer a claim waits for its place once no other transaction has claimed its key.
const FOR_ITS_PLACE: Duration = Duration::from_millis(100);

/// The outcome of one round of a claim.
enum Round {
    Done(TransactionClaim),
    /// Another transaction has claimed the key, or has locked its record or the place of one.
    Locked,
    /// A concurrent transaction changed the record first.
    Retry,
}

/// Claims a key in a new transaction. Waits this long for another transaction with the key.
///
/// The record is read before the transaction begins, so that a duplicate needs none, and so that
/// the handler's first read, and not the store's, decides what its transaction sees.
pub(crate) async fn claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    max_wait: Duration,
) -> Result<TransactionClaim, StoreError> {
    let deadline = Instant::now() + max_wait;
    let (mut rounds, mut pause, mut end) = (0, FIRST_PAUSE, None);
    while rounds < MAX_ROUNDS {
        match round(engine, id, claim).await? {
            Round::Done(claimed) => return Ok(claimed),
            Round::Retry => rounds += 1,
            // Handlers can use the connection during the pause.
            Round::Locked => {
                let now = Instant::now();
                if now >= deadline && is_locked(engine, id).await? {
                    return Ok(TransactionClaim::Rejected(Rejection::IN_FLIGHT));
                }
                let end =
                    if now < deadline { deadline } else { *end.get_or_insert(now + FOR_ITS_PLACE) };
                let left = end.saturating_duration_since(now);
                if left.is_zero() {
                    break;
                }
                sleep(left.min(pause.mul_f64(0.5 + fastrand::f64()))).await;
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
    }
    Err(StoreError::transient(NAME, "claim", ClaimContention))
}

async fn round(engine: &Engine, id: &RecordId, claim: &Claim) -> Result<Round, StoreError> {
    let (record, now) = engine.existing(id).await?;
    let Some(seen) = record else {
        let statement = literal(&engine.statements.claim_in_transaction(id, claim));
        return granted(engine, &statement, 1).await;
    };
    let expired = seen.is_expired(now);
    match transition::claim(Some(&seen), claim, now) {
        (_, ClaimOutcome::Granted { attempt }) => {
            let statement = replacing(engine, (id, claim), (&seen, expired));
            granted(engine, &statement, attempt).await
        }
        (Change::Put(new), ClaimOutcome::Rejected(rejection)) => {
            // A claim that is not granted is written outside of a transaction.
            let seen = (&seen, expired);
            let written = write_claim(engine, id, claim, seen, &new, &mut false).await?;
            Ok(if written { rejected(rejection) } else { Round::Retry })
        }
        (_, ClaimOutcome::Rejected(rejection)) => Ok(rejected(rejection)),
    }
}

/// The statement that replaces the record that was seen, or renews the claim's own.
fn replacing(
    engine: &Engine,
    (id, claim): (&RecordId, &Claim),
    (seen, expired): (&Record, bool),
) -> String {
    literal(&engine.statements.replace_in_transaction(id, claim, (seen, expired)))
}

/// Begins a transaction with the statement of a claim. Between the read and this statement another
/// process may change the record; the statement, which repeats every guard and names what was read,
/// then changes nothing (case `one_of_many_concurrent_takeovers_wins`).
async fn granted(engine: &Engine, statement: &str, attempt: u32) -> Result<Round, StoreError> {
    match begin_with(engine, Some(statement)).await {
        Ok((transaction, 0)) => {
            transaction.roll_back().await;
            Ok(Round::Retry)
        }
        Ok((transaction, _)) => {
            let transaction = Box::new(MySqlTransaction::new(transaction));
            Ok(Round::Done(TransactionClaim::Granted { attempt, transaction }))
        }
        Err(error) if error_kind(&error) == ErrorKind::Locked => Ok(Round::Locked),
        Err(error) if matches!(error_kind(&error), ErrorKind::Exists | ErrorKind::Conflict) => {
            Ok(Round::Retry)
        }
        Err(error) => Err(engine.store_error("claim", error)),
    }
}

fn rejected(rejection: Rejection) -> Round {
    Round::Done(TransactionClaim::Rejected(rejection))
}
