//! Claims that are committed by themselves.

use std::time::Duration;

use sqlx::Row as _;
use tokio::time::sleep;

use super::{
    NAME, PostgresStore,
    connect::Way,
    error::waited_for_a_record,
    run::{Again, record},
};
use crate::{
    error::StoreError,
    lease::Lease,
    protocol::{Claim, ClaimOutcome, Renewal},
    record::{Record, RecordState},
    record_id::RecordId,
    store::sql::Contended,
    transition::{self, Change},
};

/// How often a claim looks again when another one was faster.
pub(super) const ROUNDS: usize = 3;
/// How often a claim that is sent again looks whether its record is free.
const LOOKS: usize = 40;
/// The longest pause between two such looks.
const PAUSE: Duration = Duration::from_millis(8);
/// The outcome for a key whose record another transaction has, and so hides.
pub(super) const IN_FLIGHT: ClaimOutcome = ClaimOutcome::InFlight { lease_left: Duration::ZERO };

impl PostgresStore {
    pub(super) async fn claim_by_rounds(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        for _ in 0..ROUNDS {
            // Where a claim has to begin a transaction, reading takes fewer round trips.
            if self.pools.server.way == Way::Plain
                && let Some(outcome) = self.known(id, claim).await?
            {
                return Ok(outcome);
            }
            // Between the look and the insert of this statement another claim may win; then it sees neither and gives no row
            // (case `one_of_many_concurrent_claims_wins`). Nothing is granted on that: the next round looks again.
            let rows = match self.try_on(&self.pools.steps, &self.statements.claim(id, claim), Again::Waits).await {
                Ok(rows) => rows,
                Err(error) if waited_for_a_record(&error) => return Ok(IN_FLIGHT),
                Err(error) => return Err(self.failed("claim", error)),
            };
            let (record, now) = match record("claim", &rows)? {
                None => continue,
                Some((None, _)) => return Ok(ClaimOutcome::Granted { attempt: 1 }),
                Some((Some(record), now)) => (record, now),
            };
            let (change, outcome) = transition::claim(Some(&record), claim, now);
            let Change::Put(new) = change else {
                return Ok(outcome);
            };
            // Between the read and the write another process may take the key; the statement repeats every guard and names the
            // attempt that was seen, or its owner, so it then changes nothing (case `one_of_many_concurrent_takeovers_wins`).
            let expired = record.expired(now);
            match self.write_claim(id, claim, &record, expired, &new).await {
                Ok(true) => return Ok(outcome),
                Ok(false) => {}
                Err(error) if waited_for_a_record(&error) => return Ok(IN_FLIGHT),
                Err(error) => return Err(self.failed("claim", error)),
            }
        }
        Err(StoreError::transient(NAME, "claim", Contended))
    }

    /// The outcome, where the record that is there answers the claim and does not change.
    pub(super) async fn known(&self, id: &RecordId, claim: &Claim) -> Result<Option<ClaimOutcome>, StoreError> {
        let Some((Some(record), now)) = self.read("claim", self.statements.read(id)).await? else { return Ok(None) };
        match transition::claim(Some(&record), claim, now) {
            (Change::Keep, outcome) => Ok(Some(outcome)),
            _ => Ok(None),
        }
    }

    /// Writes what the state machine made of the record that was read; `false` if the record is no longer that one.
    pub(super) async fn write_claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        seen: &Record,
        expired: bool,
        new: &Record,
    ) -> Result<bool, sqlx::Error> {
        let statements = &self.statements;
        let lease = Lease { id: *id, owner: seen.owner };
        let statement = if expired {
            statements.start_over(id, claim, &seen.owner)
        } else if new.state == RecordState::Held {
            statements.hold(id, claim, &seen.owner)
        } else if new.owner != claim.owner {
            statements.shorten(&lease)
        } else if seen.owner == claim.owner {
            let renewal = [Renewal { lease, extend: claim.lease }];
            return self.extend(&renewal).await;
        } else {
            statements.take_over(id, claim, seen.attempt)
        };
        // Sent twice, it changes nothing the second time; the next round then finds what the first one did. It waits longer than the
        // claim before: what has locked a record that can be seen is most often about to commit.
        Ok(!self.try_on(&self.pools.steps, &statement, Again::Safe).await?.is_empty())
    }

    /// Renews the lease of a claim that was sent again. A renewal passes by a record that another transaction has, such as the same claim
    /// sent a third time; this one is granted all the same, so it looks again, for about a tenth of a second.
    async fn extend(&self, renewal: &[Renewal]) -> Result<bool, sqlx::Error> {
        for _ in 0..LOOKS {
            let rows = self.try_on(&self.pools.steps, &self.statements.renew(renewal), Again::Waits).await?;
            if rows.first().map_or(Ok(true), |row| row.try_get("renewed"))? {
                return Ok(!rows.is_empty());
            }
            sleep(PAUSE.mul_f64(fastrand::f64())).await;
        }
        Ok(false)
    }
}
