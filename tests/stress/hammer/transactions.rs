//! Attempts whose effect is committed together with the completion.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use tokio::time::sleep;

use super::{Checked, Count, Worker, attempt::Attempt, ensure, ledger::Ledger, request};
use crate::effects::Effects;
use idempotent_core::{
    Abandoned, Lease,
    protocol::Fence,
    store::{Transaction, TransactionClaim, Transactions},
};

/// How long a claim waits for a transaction that has the same key.
const WAIT_LIMIT: Duration = Duration::from_millis(50);

impl Attempt<'_> {
    /// Completes in a transaction that begins after the claim. Returns `None` if the owner dies in
    /// the transaction.
    pub(super) async fn complete_with(
        &self,
        effects: &Effects,
        response: &Bytes,
        rng: &mut Rng,
    ) -> Checked<Option<Fence>> {
        let mut transaction = self.transactions().begin().await?;
        effects.write(&mut *transaction, &self.lease).await;
        if rng.u8(..100) < 20 {
            transaction.roll_back().await;
            return self.abandon_in_transaction().await;
        }
        let (dies, late) = (self.ledger.never_completes || rng.u8(..100) < 10, rng.bool());
        if dies && !late {
            return self.die(transaction);
        }
        if !dies {
            return Ok(Some(transaction.complete_and_commit(&self.lease, response).await?));
        }
        match transaction.complete(&self.lease, response).await? {
            Fence::Fenced => {
                transaction.roll_back().await;
                Ok(Some(Fence::Fenced))
            }
            Fence::Passed => self.die(transaction),
        }
    }

    fn transactions(&self) -> &dyn Transactions {
        self.store.transactions().unwrap()
    }

    /// Commits an expired lease, without the effect.
    async fn abandon_in_transaction(&self) -> Checked<Option<Fence>> {
        let mut transaction = self.transactions().begin().await?;
        match transaction.abandon(&self.lease, Abandoned::Retry).await? {
            Fence::Fenced => {
                transaction.roll_back().await;
                Ok(Some(Fence::Fenced))
            }
            Fence::Passed => {
                transaction.commit().await?;
                self.shared.tally.count(Count::AbandonedInTransaction);
                Ok(None)
            }
        }
    }

    fn die(&self, transaction: Box<dyn Transaction>) -> Checked<Option<Fence>> {
        drop(transaction);
        self.shared.tally.count(Count::DeathsInTransaction);
        Ok(None)
    }
}

impl Worker {
    /// Claims a key, runs, and completes, all in one transaction.
    pub(super) async fn claim_in_transaction(
        &mut self,
        ledger: &Ledger,
        effects: &Effects,
    ) -> Checked {
        let claim = request(self.shared.hammer.lease);
        let store = self.store.clone();
        let transactions = store.transactions().unwrap();
        match transactions.claim(&ledger.id, &claim, WAIT_LIMIT).await {
            Err(error) if error.is_transient() => {
                self.shared.tally.count(Count::Unknown);
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(TransactionClaim::Rejected(rejection)) => {
                self.check_rejection(ledger, rejection).await
            }
            Ok(TransactionClaim::Granted { attempt, transaction }) => {
                self.shared.tally.count(Count::GrantedInTransaction);
                let lease = Lease { id: ledger.id, owner: claim.owner };
                self.work_in_transaction(ledger, effects, (lease, attempt), transaction).await
            }
        }
    }

    /// Runs an attempt in the transaction of its claim. No other owner can be granted the key
    /// meanwhile, so every call in the transaction must pass.
    async fn work_in_transaction(
        &mut self,
        ledger: &Ledger,
        effects: &Effects,
        (lease, attempt): (Lease, u32),
        mut transaction: Box<dyn Transaction>,
    ) -> Checked {
        let (tally, rng) = (&self.shared.tally, &mut self.rng);
        effects.write(&mut *transaction, &lease).await;
        let what = if ledger.never_completes { rng.u8(..15) } else { rng.u8(..100) };
        match what {
            0..15 => {
                tally.count(Count::DeathsInTransaction);
                if rng.bool() {
                    let complete = transaction
                        .complete(&lease, &Bytes::from_static(b"never committed"))
                        .await?;
                    ensure(complete == Fence::Passed, || {
                        "a completion in the transaction of its claim was fenced".into()
                    })?;
                }
                drop(transaction);
                return Ok(());
            }
            15..25 => {
                transaction.undo().await?;
                effects.write(&mut *transaction, &lease).await;
            }
            25..40 => {
                tally.count(Count::Pauses);
                sleep(self.shared.hammer.lease + Duration::from_millis(rng.u64(1..10))).await;
            }
            _ => {}
        }
        let response = Bytes::from(format!("{:?} in a transaction", lease.owner.as_bytes()));
        let passed = transaction.complete(&lease, &response).await?;
        ensure(passed == Fence::Passed, || {
            "a completion in the transaction of its claim was fenced".into()
        })?;
        transaction.commit().await?;
        ledger.granted(attempt, lease.owner)?;
        ledger.completed(attempt, lease.owner, response)?;
        tally.count(if attempt > 1 { Count::Takeovers } else { Count::Firsts });
        tally.count(Count::Completions);
        Ok(())
    }
}
