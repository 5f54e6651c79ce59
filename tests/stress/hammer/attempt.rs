//! The steps of a granted attempt.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use tokio::time::sleep;

use super::{Checked, Count, RENEWED_LEASE, SharedState, ensure, ledger::Ledger};
use idempotent_core::{
    Abandoned, Lease,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal},
    store::Store,
};

/// How far the clocks of the store and of this process may drift apart during a lease.
const SLACK: Duration = Duration::from_millis(3);

/// A claim that was granted.
pub(super) struct Attempt<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) shared: &'a SharedState,
    pub(super) ledger: &'a Ledger,
    pub(super) claim: Claim,
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    /// No other owner can be granted the key until then.
    pub(super) safe_until: Instant,
}

impl Attempt<'_> {
    pub(super) async fn run(&mut self, rng: &mut Rng) -> Checked {
        self.shared.tally.count(if self.attempt > 1 { Count::Takeovers } else { Count::Firsts });
        // With a lease of zero, others may have had the key before the token is used again, and the
        // ledger could not tell the attempts apart.
        if rng.u8(..16) == 0 && !self.claim.lease.is_zero() && !self.claim_again().await? {
            return Ok(());
        }
        let last =
            if self.ledger.never_completes && self.shared.effects.is_none() { 15 } else { 100 };
        match rng.u8(..last) {
            0..15 => {
                self.shared.tally.count(Count::Deaths);
                Ok(())
            }
            15..30 => {
                self.shared.tally.count(Count::Pauses);
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

    /// Repeats the claim, as if its acknowledgment had been lost. Returns whether the owner still
    /// has the key.
    async fn claim_again(&mut self) -> Checked<bool> {
        let sent = Instant::now();
        let Ok(outcome) = self.store.claim(&self.lease.id, &self.claim).await else {
            return Ok(false);
        };
        let in_time = Instant::now() + SLACK < self.safe_until;
        match outcome {
            ClaimOutcome::Granted { attempt } => {
                let same = attempt == self.attempt || !in_time;
                ensure(same, || format!("attempt {} became attempt {attempt}", self.attempt))?;
                self.ledger.granted(attempt, self.lease.owner)?;
                (self.attempt, self.safe_until) = (attempt, sent + self.claim.lease);
                self.shared.tally.count(Count::Resent);
                Ok(true)
            }
            lost @ ClaimOutcome::Rejected(_) => {
                ensure(!in_time, || format!("a repeated claim returned {lost:?}")).map(|()| false)
            }
        }
    }

    /// Pauses until the lease has expired, and in most cases until another owner has the key.
    async fn pause(&self, rng: &mut Rng) {
        let lease = self.claim.lease;
        sleep(lease + Duration::from_millis(rng.u64(1..10))).await;
        let deadline = Instant::now() + if rng.u8(..4) == 0 { Duration::ZERO } else { lease * 20 };
        while self.ledger.last_attempt() == self.attempt
            && !self.ledger.is_completed()
            && Instant::now() < deadline
        {
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn renew(&mut self) -> Checked {
        let sent = Instant::now();
        match self.send_renewal(RENEWED_LEASE).await? {
            RenewOutcome::Renewed => {
                self.safe_until = sent + RENEWED_LEASE;
                self.shared.tally.count(Count::Renewals);
            }
            RenewOutcome::Fenced => self.assert_late()?,
            RenewOutcome::Unknown => {}
        }
        Ok(())
    }

    async fn send_renewal(&self, extend: Duration) -> Checked<RenewOutcome> {
        // On a busy machine a renewal may fail because it takes too long.
        let fences = match self.store.renew(&[Renewal::new(self.lease, extend)]).await {
            Err(error) if error.is_transient() => return Ok(RenewOutcome::Unknown),
            renewed => renewed?,
        };
        ensure(fences.len() == 1, || format!("one renewal returned {fences:?}"))?;
        Ok(fences[0])
    }

    async fn complete(&self, rng: &mut Rng) -> Checked {
        let response = Bytes::from(format!(
            "{:?} of {} by {:?}",
            self.attempt,
            self.lease.id,
            self.lease.owner.as_bytes()
        ));
        let fence = match &self.shared.effects {
            None => Some(self.store.complete(&self.lease, &response).await?),
            Some(effects) => self.complete_with(effects, &response, rng).await?,
        };
        let Some(fence) = fence else { return Ok(()) };
        match fence {
            Fence::Passed => {
                self.ledger.completed(self.attempt, self.lease.owner, response)?;
                self.shared.tally.count(Count::Completions);
                if rng.u8(..4) == 0 { self.after_completion().await } else { Ok(()) }
            }
            Fence::Fenced => {
                self.assert_late()?;
                self.shared.tally.count(Count::FencedCompletions);
                self.after_fence().await
            }
        }
    }

    /// Checks that an attempt was fenced only after its lease had expired.
    fn assert_late(&self) -> Checked {
        let late = Instant::now() + SLACK >= self.safe_until;
        ensure(late, || format!("attempt {} was fenced within its lease", self.attempt))
    }

    /// After a completion, its owner can repeat the completion, and nothing else.
    async fn after_completion(&self) -> Checked {
        let again = self.store.complete(&self.lease, &Bytes::from_static(b"again")).await?;
        ensure(again == Fence::Passed, || "an owner could not complete again".into())?;
        self.assert_fenced("the owner of a recorded response").await
    }

    /// A fenced attempt stays fenced.
    async fn after_fence(&self) -> Checked {
        let again = self.store.complete(&self.lease, &Bytes::from_static(b"stale")).await?;
        ensure(again == Fence::Fenced, || "a fenced owner completed".into())?;
        self.assert_fenced("a fenced owner").await
    }

    async fn assert_fenced(&self, who: &str) -> Checked {
        for (what, fence) in [
            ("released", self.store.release(&self.lease).await?),
            ("abandoned", self.store.abandon(&self.lease, Abandoned::Retry).await?),
        ] {
            ensure(fence == Fence::Fenced, || format!("{who} {what} the key"))?;
        }
        ensure(self.send_renewal(RENEWED_LEASE).await? != RenewOutcome::Renewed, || {
            format!("{who} renewed the key")
        })?;
        self.shared.tally.count(Count::FencedCalls);
        Ok(())
    }
}
