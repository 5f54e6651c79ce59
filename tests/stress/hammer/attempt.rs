//! What an owner does.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use tokio::time::sleep;

use super::{Checked, Count, Field, RENEWED, holds, ledger::Ledger};
use idempotent_core::{
    Abandoned, Lease,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal},
    store::Store,
};

/// How far the clocks of a store and of this process may drift during a lease.
const SLACK: Duration = Duration::from_millis(3);

/// A claim that was granted.
pub(super) struct Attempt<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) field: &'a Field,
    pub(super) ledger: &'a Ledger,
    pub(super) claim: Claim,
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    /// No other owner can be granted the key until then.
    pub(super) safe_until: Instant,
}

impl Attempt<'_> {
    pub(super) async fn run(&mut self, rng: &mut Rng) -> Checked {
        self.field.tally.count(if self.attempt > 1 { Count::Takeovers } else { Count::Firsts });
        // A token that is reused after others had the key makes their attempts hard to distinguish.
        if rng.u8(..16) == 0 && !self.claim.lease.is_zero() && !self.claim_again().await? {
            return Ok(());
        }
        let last = if self.ledger.doomed && self.field.effects.is_none() { 15 } else { 100 };
        match rng.u8(..last) {
            0..15 => {
                self.field.tally.count(Count::Deaths);
                Ok(())
            }
            15..30 => {
                self.field.tally.count(Count::Pauses);
                self.pause(rng).await;
                if rng.bool() {
                    self.renew().await?;
                }
                self.complete(rng).await
            }
            _ => {
                sleep(Duration::from_micros(rng.u64(..2_000))).await;
                if rng.u8(..4) == 0 {
                    self.renew().await?;
                }
                self.complete(rng).await
            }
        }
    }

    /// Sends the claim once more, as if its acknowledgment had been lost; returns whether the owner
    /// still has the key.
    async fn claim_again(&mut self) -> Checked<bool> {
        let asked = Instant::now();
        let Ok(outcome) = self.store.claim(&self.lease.id, &self.claim).await else {
            return Ok(false);
        };
        let in_time = Instant::now() + SLACK < self.safe_until;
        match outcome {
            ClaimOutcome::Granted { attempt } => {
                let same = attempt == self.attempt || !in_time;
                holds(same, || format!("attempt {} became attempt {attempt}", self.attempt))?;
                self.ledger.granted(attempt, self.lease.owner)?;
                (self.attempt, self.safe_until) = (attempt, asked + self.claim.lease);
                self.field.tally.count(Count::Resent);
                Ok(true)
            }
            lost @ (ClaimOutcome::Completed(_)
            | ClaimOutcome::InFlight { .. }
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::Mismatch { .. }) => {
                holds(!in_time, || format!("a repeated claim returned {lost:?}")).map(|()| false)
            }
        }
    }

    /// Pauses until the lease has expired, and in most cases until another owner has the key.
    async fn pause(&self, rng: &mut Rng) {
        let lease = self.claim.lease;
        sleep(lease + Duration::from_millis(rng.u64(1..10))).await;
        let patience = Instant::now() + if rng.u8(..4) == 0 { Duration::ZERO } else { lease * 20 };
        while self.ledger.last_attempt() == self.attempt
            && !self.ledger.done()
            && Instant::now() < patience
        {
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn renew(&mut self) -> Checked {
        let asked = Instant::now();
        match self.renewed(RENEWED).await? {
            RenewOutcome::Renewed => {
                self.safe_until = asked + RENEWED;
                self.field.tally.count(Count::Renewals);
            }
            RenewOutcome::Fenced => self.assert_late()?,
            RenewOutcome::Unknown => {}
        }
        Ok(())
    }

    async fn renewed(&self, extend: Duration) -> Checked<RenewOutcome> {
        // A renewal that has no outcome in time fails, as on a busy machine.
        let fences = match self.store.renew(&[Renewal::new(self.lease, extend)]).await {
            Err(error) if error.is_transient() => return Ok(RenewOutcome::Unknown),
            renewed => renewed?,
        };
        holds(fences.len() == 1, || format!("one renewal returned {fences:?}"))?;
        Ok(fences[0])
    }

    async fn complete(&self, rng: &mut Rng) -> Checked {
        let response = Bytes::from(format!(
            "{:?} of {} by {:?}",
            self.attempt,
            self.lease.id,
            self.lease.owner.as_bytes()
        ));
        let fence = match &self.field.effects {
            None => Some(self.store.complete(&self.lease, &response).await?),
            Some(effects) => self.complete_with(effects, &response, rng).await?,
        };
        let Some(fence) = fence else { return Ok(()) };
        match fence {
            Fence::Passed => {
                self.ledger.completed(self.attempt, self.lease.owner, response)?;
                self.field.tally.count(Count::Completions);
                if rng.u8(..4) == 0 { self.after_completion().await } else { Ok(()) }
            }
            Fence::Fenced => {
                self.assert_late()?;
                self.field.tally.count(Count::FencedCompletions);
                self.after_fence().await
            }
        }
    }

    /// Checks that an attempt was fenced only after its lease had expired.
    fn assert_late(&self) -> Checked {
        let late = Instant::now() + SLACK >= self.safe_until;
        holds(late, || format!("attempt {} was fenced within its lease", self.attempt))
    }

    /// Its owner can repeat the completion, and nothing else.
    async fn after_completion(&self) -> Checked {
        let again = self.store.complete(&self.lease, &Bytes::from_static(b"again")).await?;
        holds(again == Fence::Passed, || "an owner could not complete again".into())?;
        self.assert_fenced("the owner of a recorded response").await
    }

    /// An attempt that was fenced once stays fenced.
    async fn after_fence(&self) -> Checked {
        let again = self.store.complete(&self.lease, &Bytes::from_static(b"stale")).await?;
        holds(again == Fence::Fenced, || "a fenced owner completed".into())?;
        self.assert_fenced("a fenced owner").await
    }

    async fn assert_fenced(&self, who: &str) -> Checked {
        for (what, fence) in [
            ("released", self.store.release(&self.lease).await?),
            ("abandoned", self.store.abandon(&self.lease, Abandoned::Retry).await?),
        ] {
            holds(fence == Fence::Fenced, || format!("{who} {what} the key"))?;
        }
        holds(self.renewed(RENEWED).await? != RenewOutcome::Renewed, || {
            format!("{who} renewed the key")
        })?;
        self.field.tally.count(Count::Refused);
        Ok(())
    }
}
