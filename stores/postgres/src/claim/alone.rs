//! Claims by a statement of their own.

use std::time::Duration;

use sqlx::{Row as _, postgres::PgRow};
use tokio::time::sleep;

use crate::{
    engine::{Engine, Resend},
    error::{NAME, waited_for_a_record, waited_for_an_existing_record},
    server::StatementMode,
};
use idempotent_core::{
    Lease, Record, RecordId, RecordState, StoreError,
    protocol::{Claim, ClaimOutcome, Rejection, Renewal},
    transition::{self, Change},
};
use idempotent_sql::{ClaimContention, TimedRecord};

/// How often a claim starts again because a concurrent claim changed the record first.
pub(crate) const MAX_ROUNDS: usize = 3;
/// How often a claim tries to insert a record whose key another transaction has locked; and how
/// often a claim that is sent again tries to renew a record that another transaction has locked.
const CHECKS: usize = 40;
/// The longest pause between two such attempts.
const PAUSE: Duration = Duration::from_millis(8);

/// Claims alone. If the claim is `repeated`, it may have been sent before without a response,
/// and may be what has locked the key; whether the key is in flight is then unknown.
pub(crate) async fn claim_alone(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    mut repeated: bool,
) -> Result<ClaimOutcome, StoreError> {
    match claim_unless_locked(engine, id, claim, &mut repeated).await? {
        Some(outcome) => Ok(outcome),
        None if repeated => Err(StoreError::transient(NAME, "claim", ClaimContention)),
        None => Ok(ClaimOutcome::IN_FLIGHT),
    }
}

/// Claims alone; returns `None` if another transaction has locked the key or its record. Sets
/// `repeated` if that may be this claim, because a statement was sent again.
async fn claim_unless_locked(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    repeated: &mut bool,
) -> Result<Option<ClaimOutcome>, StoreError> {
    let statements = engine.statements("claim").await?;
    let (mut rounds, mut checks) = (0, 0);
    while rounds < MAX_ROUNDS {
        // A plain claim has to begin a transaction, so reading first saves round trips for
        // duplicates.
        if engine.pools.server.mode == StatementMode::Plain
            && let Some(rejection) = rejection_without_write(engine, id, claim).await?
        {
            return Ok(Some(ClaimOutcome::Rejected(rejection)));
        }
        // Between the read and the insert of this statement another process may claim the key,
        // or a transaction may have its lock, and the statement then returns no row; it is
        // repeated for about 100 ms (case `one_of_many_concurrent_claims_wins`).
        let rows = match engine
            .try_execute_noting(
                &engine.pools.steps,
                &statements.claim(id, claim),
                Resend::UnlessLocked,
                repeated,
            )
            .await
        {
            Ok(rows) => rows,
            Err(error) if waited_for_a_record(&error) => return Ok(None),
            Err(error) => return Err(engine.store_error("claim", error)),
        };
        let (record, now) = match claimed(&rows)? {
            None if checks < CHECKS => {
                checks += 1;
                sleep(PAUSE.mul_f64(fastrand::f64())).await;
                continue;
            }
            None => return Ok(None),
            Some((None, _)) => return Ok(Some(ClaimOutcome::Granted { attempt: 1 })),
            Some((Some(record), now)) => (record, now),
        };
        let (change, outcome) = transition::claim(Some(&record), claim, now);
        let Change::Put(new) = change else {
            return Ok(Some(outcome));
        };
        // Between the read and the write another process may take the key; the statement, which
        // repeats every guard and names the attempt or the owner that was read, then changes
        // nothing (case `one_of_many_concurrent_takeovers_wins`).
        let write = (&record, record.is_expired(now), &new);
        match write_claim(engine, id, claim, write, repeated).await {
            Ok(true) => return Ok(Some(outcome)),
            Ok(false) => rounds += 1,
            Err(error) if waited_for_an_existing_record(&error) => return Ok(None),
            Err(error) => return Err(engine.store_error("claim", error)),
        }
    }
    Err(StoreError::transient(NAME, "claim", ClaimContention))
}

/// Reads the record of a key, and returns why a claim is rejected that needs no write; `None` for
/// any other claim.
pub(crate) async fn rejection_without_write(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
) -> Result<Option<Rejection>, StoreError> {
    let existing = engine.statements("claim").await?.steps.existing(id);
    // A read waits for a lock on the table only.
    let rows = engine.execute("claim", existing, Resend::UnlessLocked).await?;
    Ok(claimed(&rows)?.and_then(|(record, now)| {
        transition::rejection_without_change(record.as_ref(), claim, now)
    }))
}

/// Writes the record that the state machine has decided on; returns `false` if the record has
/// changed since it was read. Sets `repeated` as
/// [`try_execute_noting`](Engine::try_execute_noting) does.
pub(crate) async fn write_claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    (seen, expired, new): (&Record, bool, &Record),
    repeated: &mut bool,
) -> Result<bool, sqlx::Error> {
    let statements = engine.try_statements().await?;
    let lease = Lease { id: *id, owner: seen.owner };
    let statement = if expired {
        statements.start_over(id, claim, &seen.owner)
    } else if new.state == RecordState::Held {
        statements.steps.hold(id, claim, &seen.owner)
    } else if new.owner != claim.owner {
        statements.steps.shorten(&lease)
    } else if seen.owner == claim.owner {
        let renewal = [Renewal::new(lease, claim.lease)];
        return extend(engine, &renewal).await;
    } else {
        statements.take_over(id, claim, seen.attempt)
    };
    // A second execution changes nothing, and the next round finds what the first one did. It
    // may wait longer than the claim: the transaction that locks a visible record is usually
    // about to commit.
    let (steps, resend) = (&engine.pools.steps, Resend::Always);
    Ok(!engine.try_execute_noting(steps, &statement, resend, repeated).await?.is_empty())
}

/// Renews the lease of a claim that was sent again. The statement skips a record that another
/// transaction has locked, such as the same claim sent a third time, so it is repeated for
/// about 100 ms.
async fn extend(engine: &Engine, renewal: &[Renewal]) -> Result<bool, sqlx::Error> {
    let statements = engine.try_statements().await?;
    for _ in 0..CHECKS {
        let rows = engine
            .try_execute_on(&engine.pools.steps, &statements.renew(renewal), Resend::UnlessLocked)
            .await?;
        if rows.first().map_or(Ok(true), |row| row.try_get("renewed"))? {
            return Ok(!rows.is_empty());
        }
        sleep(PAUSE.mul_f64(fastrand::f64())).await;
    }
    Ok(false)
}

/// Decodes what `claim.sql` returns of the record in the first row; `None` if there is no row.
pub(crate) fn claimed(rows: &[PgRow]) -> Result<Option<TimedRecord>, StoreError> {
    let read = rows.first().map(idempotent_sql::claimed_from_row).transpose();
    read.map_err(|source| StoreError::unreadable(NAME, "claim", source))
}
