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
            claim::MAX_ROUNDS,
            error::{ErrorKind, error_kind, waited_for_a_record, waited_for_an_existing_record},
            execute::claimed,
        },
        sql::ClaimContention,
    },
    transition::{self, Change},
};

/// The outcome of one round of a claim.
enum Round {
    Done(TransactionClaim),
    /// A concurrent transaction changed the record first.
    Retry,
}

impl PostgresStore {
    pub(super) async fn claim_in_transaction(
        &self,
        id: &RecordId,
        claim: &Claim,
        max_wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        for _ in 0..MAX_ROUNDS {
            // On the application's connections a read takes fewer round trips than beginning a
            // transaction; on the store's own it does not wait for handlers that use all of them.
            let connections = &self.pools.transactions;
            if (!connections.is_own() || !connections.has_free_connection())
                && let Some(outcome) = self.outcome_without_write(id, claim).await?
            {
                return Ok(TransactionClaim::Rejected(outcome));
            }
            if let Round::Done(claimed) = self.round(id, claim, max_wait).await? {
                return Ok(claimed);
            }
        }
        Err(StoreError::transient(NAME, "claim", ClaimContention))
    }

    /// Begins a transaction and claims, which returns an existing record; a second statement in the
    /// same transaction replaces it.
    async fn round(
        &self,
        id: &RecordId,
        claim: &Claim,
        max_wait: Duration,
    ) -> Result<Round, StoreError> {
        let (transaction, rows) = match self.begin_claiming(id, claim, max_wait).await {
            Ok(begin_retrying) => begin_retrying,
            Err(error) => return self.round_of(error),
        };
        let (record, now) = match claimed(&rows)? {
            Some((Some(record), now)) => (record, now),
            Some((None, _)) => return self.granted(transaction, 1).await,
            // Another process inserted the record after this statement's read, so the statement
            // cannot see it.
            None => {
                transaction.roll_back_empty().await;
                return Ok(Round::Retry);
            }
        };
        let (change, outcome) = transition::claim(Some(&record), claim, now);
        let Change::Put(new) = change else {
            transaction.roll_back_empty().await;
            return Ok(Round::Done(TransactionClaim::Rejected(outcome)));
        };
        // A claim that is not granted is written outside the transaction.
        if new.owner != claim.owner {
            transaction.roll_back_empty().await;
            return match self.write_claim(id, claim, &record, false, &new).await {
                Ok(true) => Ok(Round::Done(TransactionClaim::Rejected(outcome))),
                Ok(false) => Ok(Round::Retry),
                Err(error) => self.round_of(error),
            };
        }
        let expired = record.is_expired(now);
        if record.owner == claim.owner && !expired {
            return self.renew(transaction, (id, claim), new.attempt, max_wait).await;
        }
        self.replace(transaction, (id, claim), ((&record, expired), new.attempt), max_wait).await
    }

    /// Between the read and the write another process may change the record; the statement, which
    /// repeats every guard and names what was read, then changes nothing (case
    /// `one_of_many_concurrent_takeovers_wins`).
    async fn replace(
        &self,
        mut transaction: PgTransaction,
        (id, claim): (&RecordId, &Claim),
        (seen, attempt): ((&Record, bool), u32),
        max_wait: Duration,
    ) -> Result<Round, StoreError> {
        let statement = self.statements.replace_in_transaction(id, claim, seen);
        match transaction.write(statement, max_wait).await {
            Ok(rows) if rows.is_empty() => {
                transaction.roll_back_empty().await;
                Ok(Round::Retry)
            }
            Ok(_) => self.granted(transaction, attempt).await,
            Err(error) => self.failed_round(transaction, error).await,
        }
    }

    /// Renews a claim that was sent again because its acknowledgment was lost. If another
    /// transaction has locked the record, such as the same claim sent a third time, the key is in
    /// flight.
    async fn renew(
        &self,
        mut transaction: PgTransaction,
        (id, claim): (&RecordId, &Claim),
        attempt: u32,
        max_wait: Duration,
    ) -> Result<Round, StoreError> {
        let renewal =
            [Renewal { lease: Lease { id: *id, owner: claim.owner }, extend: claim.lease }];
        let rows = match transaction.write(self.statements.renew(&renewal), max_wait).await {
            Ok(rows) => rows,
            Err(error) => return self.failed_round(transaction, error).await,
        };
        let renewed = rows.first().map(|row| row.try_get("renewed")).transpose();
        match renewed.map_err(|error| self.store_error("claim", error))? {
            Some(true) => self.granted(transaction, attempt).await,
            Some(false) => {
                transaction.roll_back_empty().await;
                Ok(Round::Done(in_flight()))
            }
            None => {
                transaction.roll_back_empty().await;
                Ok(Round::Retry)
            }
        }
    }

    async fn failed_round(
        &self,
        transaction: PgTransaction,
        error: sqlx::Error,
    ) -> Result<Round, StoreError> {
        if matches!(
            error_kind(&error),
            ErrorKind::LockTimeout | ErrorKind::Conflict | ErrorKind::Transient
        ) {
            transaction.roll_back_empty().await;
        }
        if waited_for_an_existing_record(&error) {
            return Ok(Round::Done(in_flight()));
        }
        self.round_of(error)
    }

    async fn granted(
        &self,
        mut transaction: PgTransaction,
        attempt: u32,
    ) -> Result<Round, StoreError> {
        transaction.restore_settings().await.map_err(|error| self.store_error("claim", error))?;
        Ok(Round::Done(TransactionClaim::Granted { attempt, transaction: Box::new(transaction) }))
    }

    fn round_of(&self, error: sqlx::Error) -> Result<Round, StoreError> {
        if waited_for_a_record(&error) {
            Ok(Round::Done(in_flight()))
        } else if error_kind(&error) == ErrorKind::Conflict {
            Ok(Round::Retry)
        } else {
            Err(self.store_error("claim", error))
        }
    }
}
