//! Claims by statements of their own.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    engine::{Engine, Resend},
    error::{ErrorKind, NAME, error_kind},
};
use idempotent_core::{
    Lease, Record, RecordId, StoreError,
    protocol::{Claim, ClaimOutcome},
    transition::{self, Change},
};
use idempotent_sql::ClaimContention;

/// How often a claim starts again because a concurrent claim changed the record first.
pub(crate) const MAX_ROUNDS: usize = 3;
/// How often a claim tries to insert a record while another transaction has locked its place, and
/// the longest pause between two such attempts: about 100 ms in all.
const CHECKS: usize = 25;
const PAUSE: Duration = Duration::from_millis(8);

/// Claims alone. If the claim is `repeated`, it may have been sent before without a response,
/// and may be what has locked the key; whether the key is in flight is then unknown.
pub(crate) async fn claim_alone(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    mut repeated: bool,
) -> Result<ClaimOutcome, StoreError> {
    let (mut rounds, mut checks) = (0, 0);
    while rounds < MAX_ROUNDS {
        // Reading first saves a duplicate from waiting and from deadlocks.
        let (record, now) = engine.existing(id).await?;
        let written = match &record {
            None => match insert(engine, id, claim, &mut repeated).await? {
                Inserted::Granted => return Ok(ClaimOutcome::Granted { attempt: 1 }),
                Inserted::Exists => false,
                Inserted::Locked if checks < CHECKS => {
                    checks += 1;
                    sleep(PAUSE.mul_f64(fastrand::f64())).await;
                    continue;
                }
                Inserted::Locked if repeated || !is_locked(engine, id).await? => break,
                Inserted::Locked => return Ok(ClaimOutcome::IN_FLIGHT),
            },
            Some(seen) => {
                let (change, outcome) = transition::claim(Some(seen), claim, now);
                let Change::Put(new) = change else { return Ok(outcome) };
                // Between the read and the write another process may take the key; the statement,
                // which repeats every guard and names the attempt or the owner that was read, then
                // changes nothing (case `one_of_many_concurrent_takeovers_wins`).
                let seen = (seen, seen.is_expired(now));
                if write_claim(engine, id, claim, seen, &new, &mut repeated).await? {
                    return Ok(outcome);
                }
                false
            }
        };
        rounds += usize::from(!written);
    }
    Err(StoreError::transient(NAME, "claim", ClaimContention))
}

/// The outcome of inserting a record.
enum Inserted {
    Granted,
    Exists,
    /// Another transaction has inserted a record, and may roll it back; or it has locked the place
    /// of the record.
    Locked,
}

async fn insert(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    repeated: &mut bool,
) -> Result<Inserted, StoreError> {
    let statement = engine.statements.steps.claim(id, claim);
    let inserted = engine.try_execute(&statement, Resend::UnlessLocked, repeated).await;
    let Err(error) = inserted else { return Ok(Inserted::Granted) };
    let kind = error_kind(&error);
    if kind == ErrorKind::Exists {
        Ok(Inserted::Exists)
    } else if kind == ErrorKind::Locked {
        Ok(Inserted::Locked)
    } else {
        Err(engine.store_error("claim", error))
    }
}

/// Whether another transaction has locked the record of a key, which it may have inserted. A lock
/// that an insertion met does not tell: a transaction that has looked for one missing record may
/// have locked the place of many.
pub(crate) async fn is_locked(engine: &Engine, id: &RecordId) -> Result<bool, StoreError> {
    let statement = engine.statements.before(id);
    match engine.try_execute(&statement, Resend::UnlessLocked, &mut false).await {
        Ok(_) => Ok(false),
        Err(error) if error_kind(&error) == ErrorKind::Locked => Ok(true),
        Err(error) => Err(engine.store_error("claim", error)),
    }
}

/// Writes the record that the state machine has decided on; returns `false` if the record has
/// changed since it was read. Sets `repeated` as [`try_execute`](Engine::try_execute) does.
pub(crate) async fn write_claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    (seen, expired): (&Record, bool),
    new: &Record,
    repeated: &mut bool,
) -> Result<bool, StoreError> {
    let lease = Lease { id: *id, owner: seen.owner };
    // A second execution changes nothing, and the next round finds what the first one did. It waits
    // for the record: the transaction that has locked a visible record is usually about to commit.
    let statement = engine.statements.claim_seen(id, claim, (seen, &lease, expired), new);
    let done = engine.try_execute(&statement, Resend::Always, repeated).await;
    done.map(|done| done.changed != 0).map_err(|error| engine.store_error("claim", error))
}
