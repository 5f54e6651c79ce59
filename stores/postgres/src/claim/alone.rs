//! Claims that are committed by themselves.

use std::time::Duration;

use sqlx::Row as _;
use tokio::time::sleep;

use crate::{
    engine::{Resend, claimed},
    error::NAME,
    error::{waited_for_a_record, waited_for_an_existing_record},
    server::StatementMode,
    store::PostgresStore,
};
use idempotent_core::{
    Lease, Record, RecordId, RecordState, StoreError,
    protocol::{Claim, ClaimOutcome, Renewal},
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
/// The outcome for a key whose record another transaction has locked.
pub(crate) const IN_FLIGHT: ClaimOutcome = ClaimOutcome::IN_FLIGHT;

impl PostgresStore {
    /// Claims alone. If the claim is `repeated`, it may have been sent before without a response,
    /// and may be what has locked the key; whether the key is in flight is then unknown.
    pub(crate) async fn claim_with_retries(
        &self,
        id: &RecordId,
        claim: &Claim,
        mut repeated: bool,
    ) -> Result<ClaimOutcome, StoreError> {
        match self.claim_unless_locked(id, claim, &mut repeated).await? {
            Some(outcome) => Ok(outcome),
            None if repeated => Err(StoreError::transient(NAME, "claim", ClaimContention)),
            None => Ok(IN_FLIGHT),
        }
    }

    /// Claims alone; returns `None` if another transaction has locked the key or its record. Sets
    /// `repeated` if that may be this claim, because a statement was sent again.
    async fn claim_unless_locked(
        &self,
        id: &RecordId,
        claim: &Claim,
        repeated: &mut bool,
    ) -> Result<Option<ClaimOutcome>, StoreError> {
        let statements = self.statements("claim").await?;
        let (mut rounds, mut checks) = (0, 0);
        while rounds < MAX_ROUNDS {
            // A plain claim has to begin a transaction, so reading first saves round trips for
            // duplicates.
            if self.pools.server.mode == StatementMode::Plain
                && let Some(outcome) = self.outcome_without_write(id, claim).await?
            {
                return Ok(Some(outcome));
            }
            // Between the read and the insert of this statement another process may claim the key,
            // or a transaction may have its lock, and the statement then returns no row; it is
            // repeated for about 100 ms (case `one_of_many_concurrent_claims_wins`).
            let rows = match self
                .try_execute_noting(
                    &self.pools.steps,
                    &statements.claim(id, claim),
                    Resend::UnlessLocked,
                    repeated,
                )
                .await
            {
                Ok(rows) => rows,
                Err(error) if waited_for_a_record(&error) => return Ok(None),
                Err(error) => return Err(self.store_error("claim", error)),
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
            match self.write_claim(id, claim, write, repeated).await {
                Ok(true) => return Ok(Some(outcome)),
                Ok(false) => rounds += 1,
                Err(error) if waited_for_an_existing_record(&error) => return Ok(None),
                Err(error) => return Err(self.store_error("claim", error)),
            }
        }
        Err(StoreError::transient(NAME, "claim", ClaimContention))
    }

    /// Returns the outcome of a claim that needs no write, `None` for any other.
    pub(crate) async fn outcome_without_write(
        &self,
        id: &RecordId,
        claim: &Claim,
    ) -> Result<Option<ClaimOutcome>, StoreError> {
        let existing = self.statements("claim").await?.existing(id);
        // A read waits for a lock on the table only.
        let rows = self.execute("claim", existing, Resend::UnlessLocked).await?;
        Ok(claimed(&rows)?.and_then(|found| unchanged(found, claim)))
    }

    /// Writes the record that the state machine has decided on; returns `false` if the record has
    /// changed since it was read. Sets `repeated` as
    /// [`try_execute_noting`](Self::try_execute_noting) does.
    pub(crate) async fn write_claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        (seen, expired, new): (&Record, bool, &Record),
        repeated: &mut bool,
    ) -> Result<bool, sqlx::Error> {
        let statements = self.try_statements().await?;
        let lease = Lease { id: *id, owner: seen.owner };
        let statement = if expired {
            statements.start_over(id, claim, &seen.owner)
        } else if new.state == RecordState::Held {
            statements.hold(id, claim, &seen.owner)
        } else if new.owner != claim.owner {
            statements.shorten(&lease)
        } else if seen.owner == claim.owner {
            let renewal = [Renewal::new(lease, claim.lease)];
            return self.extend(&renewal).await;
        } else {
            statements.take_over(id, claim, seen.attempt)
        };
        // A second execution changes nothing, and the next round finds what the first one did. It
        // may wait longer than the claim: the transaction that locks a visible record is usually
        // about to commit.
        let (steps, resend) = (&self.pools.steps, Resend::Always);
        Ok(!self.try_execute_noting(steps, &statement, resend, repeated).await?.is_empty())
    }

    /// Renews the lease of a claim that was sent again. The statement skips a record that another
    /// transaction has locked, such as the same claim sent a third time, so it is repeated for
    /// about 100 ms.
    async fn extend(&self, renewal: &[Renewal]) -> Result<bool, sqlx::Error> {
        let statements = self.try_statements().await?;
        for _ in 0..CHECKS {
            let rows = self
                .try_execute_on(&self.pools.steps, &statements.renew(renewal), Resend::UnlessLocked)
                .await?;
            if rows.first().map_or(Ok(true), |row| row.try_get("renewed"))? {
                return Ok(!rows.is_empty());
            }
            sleep(PAUSE.mul_f64(fastrand::f64())).await;
        }
        Ok(false)
    }
}

/// The outcome of a claim that changes nothing of an existing record, `None` for any other.
pub(crate) fn unchanged((record, now): TimedRecord, claim: &Claim) -> Option<ClaimOutcome> {
    match transition::claim(Some(&record?), claim, now) {
        (Change::Keep, outcome) => Some(outcome),
        _ => None,
    }
}
