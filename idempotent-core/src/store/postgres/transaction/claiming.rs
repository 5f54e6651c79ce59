//! Claims that are part of a transaction.

use std::time::Duration;

use sqlx::Row as _;

use super::{PgTransaction, in_flight};
use crate::{
    error::StoreError,
    lease::Lease,
    record::Record,
    record_id::RecordId,
    store::{
        Claim, Renewal, TransactionClaim,
        postgres::{
            NAME, PostgresStore,
            claiming::ROUNDS,
            error::{Kind, kind, waited_for_a_record},
            run::record,
        },
        sql::Contended,
    },
    transition::{self, Change},
};

/// What one look at the key gave.
enum Round {
    Done(TransactionClaim),
    /// Another transaction was faster.
    Again,
}

impl PostgresStore {
    pub(super) async fn claim_within(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        for _ in 0..ROUNDS {
            // On connections of the application, reading takes fewer round trips than what begins a transaction; on those of the store, it
            // does not wait for handlers that have all of them.
            let connections = &self.pools.transactions;
            if (!connections.is_own() || !connections.has_one_free())
                && let Some(outcome) = self.known(id, claim).await?
            {
                return Ok(TransactionClaim::Rejected(outcome));
            }
            if let Round::Done(claimed) = self.round(id, claim, patience).await? {
                return Ok(claimed);
            }
        }
        Err(StoreError::transient(NAME, "claim", Contended))
    }

    /// Begins and claims, which returns what stands in the way; that is taken over by another statement, in the same transaction.
    async fn round(&self, id: &RecordId, claim: &Claim, patience: Duration) -> Result<Round, StoreError> {
        let (transaction, rows) = match self.begin_claiming(id, claim, patience).await {
            Ok(begun) => begun,
            Err(error) => return self.round_of(error),
        };
        let (record, now) = match record("claim", &rows)? {
            Some((Some(record), now)) => (record, now),
            Some((None, _)) => return self.granted(transaction, 1).await,
            // A record came between the look and the insert of this statement, which cannot see it.
            None => {
                transaction.end().await;
                return Ok(Round::Again);
            }
        };
        let (change, outcome) = transition::claim(Some(&record), claim, now);
        let Change::Put(new) = change else {
            transaction.end().await;
            return Ok(Round::Done(TransactionClaim::Rejected(outcome)));
        };
        // What is not granted is written outside of the transaction.
        if new.owner != claim.owner {
            transaction.end().await;
            return match self.write_claim(id, claim, &record, false, &new).await {
                Ok(true) => Ok(Round::Done(TransactionClaim::Rejected(outcome))),
                Ok(false) => Ok(Round::Again),
                Err(error) => self.round_of(error),
            };
        }
        let expired = record.expired(now);
        if record.owner == claim.owner && !expired {
            return self.renew(transaction, (id, claim), new.attempt, patience).await;
        }
        self.replace(transaction, (id, claim), ((&record, expired), new.attempt), patience).await
    }

    /// Between the look and the write the record may change; the statement repeats every guard and names what was seen
    /// (case `one_of_many_concurrent_takeovers_wins`).
    async fn replace(
        &self,
        mut transaction: PgTransaction,
        (id, claim): (&RecordId, &Claim),
        (seen, attempt): ((&Record, bool), u32),
        patience: Duration,
    ) -> Result<Round, StoreError> {
        let statement = self.statements.replace_within(id, claim, seen);
        match transaction.write(statement, patience).await {
            Ok(rows) if rows.is_empty() => {
                transaction.end().await;
                Ok(Round::Again)
            }
            Ok(_) => self.granted(transaction, attempt).await,
            Err(error) => self.failed_round(transaction, error).await,
        }
    }

    /// A claim that is sent again: its acknowledgement was lost. Where another transaction has the record, such as the same claim sent a
    /// third time, the key is in flight.
    async fn renew(
        &self,
        mut transaction: PgTransaction,
        (id, claim): (&RecordId, &Claim),
        attempt: u32,
        patience: Duration,
    ) -> Result<Round, StoreError> {
        let renewal = [Renewal { lease: Lease { id: *id, owner: claim.owner }, extend: claim.lease }];
        let rows = match transaction.write(self.statements.renew(&renewal), patience).await {
            Ok(rows) => rows,
            Err(error) => return self.failed_round(transaction, error).await,
        };
        let renewed = rows.first().map(|row| row.try_get("renewed")).transpose();
        match renewed.map_err(|error| self.failed("claim", error))? {
            Some(true) => self.granted(transaction, attempt).await,
            Some(false) => {
                transaction.end().await;
                Ok(Round::Done(in_flight()))
            }
            None => {
                transaction.end().await;
                Ok(Round::Again)
            }
        }
    }

    async fn failed_round(&self, transaction: PgTransaction, error: sqlx::Error) -> Result<Round, StoreError> {
        if matches!(kind(&error), Kind::Locked | Kind::Conflict | Kind::Passing) {
            transaction.end().await;
        }
        self.round_of(error)
    }

    async fn granted(&self, mut transaction: PgTransaction, attempt: u32) -> Result<Round, StoreError> {
        transaction.resume().await.map_err(|error| self.failed("claim", error))?;
        Ok(Round::Done(TransactionClaim::Granted { attempt, transaction: Box::new(transaction) }))
    }

    fn round_of(&self, error: sqlx::Error) -> Result<Round, StoreError> {
        if waited_for_a_record(&error) {
            Ok(Round::Done(in_flight()))
        } else if kind(&error) == Kind::Conflict {
            Ok(Round::Again)
        } else {
            Err(self.failed("claim", error))
        }
    }
}
