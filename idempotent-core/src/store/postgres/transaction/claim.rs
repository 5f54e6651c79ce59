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
            claim::{IN_FLIGHT, MAX_ROUNDS},
            error::{ErrorKind, error_kind, waited_for_a_record, waited_for_an_existing_record},
            execute::{Resend, claimed},
            server::Isolation,
            statements::NewRecord,
            timeouts::RESPONSE_TIMEOUT,
        },
        sql::{ClaimContention, response_mismatch},
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

    /// Begins a transaction, takes the lock of the key, and then reads its record in a statement of
    /// its own, which sees what was committed while the transaction waited for the lock.
    ///
    /// A key without a record gets one when the attempt is completed. Processes of releases that
    /// take no lock insert the record first; then the completion inserts nothing, and is fenced.
    async fn round(
        &self,
        id: &RecordId,
        claim: &Claim,
        max_wait: Duration,
    ) -> Result<Round, StoreError> {
        let mut transaction = match self.begin_locked(id, max_wait).await {
            Ok(Some(transaction)) => transaction,
            // The other transaction may be that of a replay; then the key has a record.
            Ok(None) => {
                let outcome = self.outcome_without_write(id, claim).await?.unwrap_or(IN_FLIGHT);
                return Ok(Round::Done(TransactionClaim::Rejected(outcome)));
            }
            Err(error) => return self.round_of(error),
        };
        let existing = self.statements.existing(id);
        let rows = if self.pools.server.settings.isolation == Isolation::READ_COMMITTED {
            transaction.fetch(existing, RESPONSE_TIMEOUT).await
        } else {
            // The snapshot of the transaction is older than its lock.
            self.try_execute_on(&self.pools.steps, &existing, Resend::Always).await
        };
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => return self.failed_round(transaction, error).await,
        };
        let (record, now) = match claimed(&rows)? {
            Some((Some(record), now)) => (record, now),
            Some((None, at)) => {
                transaction.new_record = Some(NewRecord { id: *id, claim: claim.clone(), at });
                return Ok(Round::Done(granted(transaction, 1)));
            }
            None => return Err(self.store_error("claim", response_mismatch())),
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
            Ok(_) => self.replaced(transaction, attempt).await,
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
            Some(true) => self.replaced(transaction, attempt).await,
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

    /// Grants a claim that has written its record: the savepoint now follows it.
    async fn replaced(
        &self,
        mut transaction: PgTransaction,
        attempt: u32,
    ) -> Result<Round, StoreError> {
        transaction.restore_settings().await.map_err(|error| self.store_error("claim", error))?;
        Ok(Round::Done(granted(transaction, attempt)))
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

fn granted(transaction: PgTransaction, attempt: u32) -> TransactionClaim {
    TransactionClaim::Granted { attempt, transaction: Box::new(transaction) }
}
