//! The implementation of [`Store`].

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    RedisStore,
    encoding::{abandoned_code, completion_args},
    node::ConnectionRole,
    router::SendAgain,
    scripts::Arg,
    steps::fence,
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::Store,
};

#[async_trait]
impl Store for RedisStore {
    /// Verifies the settings of each master, and that the user in the URL may execute each command
    /// on keys with the prefix, by sending all of them for a key that does not exist. In a cluster,
    /// masters that do not respond within 2 seconds are skipped if another one responds.
    async fn check(&self) -> Result<(), StoreError> {
        self.check_privileges().await.map_err(|failure| failure.into_error("check"))
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        match self.replicas {
            // Boxed: keeps the future small for stores without replicas.
            Some(replicas) => Box::pin(self.claim_replicated(replicas, id, claim)).await,
            None => match self.claim_on(ConnectionRole::Requests, &self.key(id), claim).await {
                Ok(claimed) => Ok(claimed.outcome),
                Err(failure) => Err(failure.into_error("claim")),
            },
        }
    }

    /// Sends all renewals at once, so that together they take one round trip. The outcome of a
    /// lease is [`RenewOutcome::Unknown`] if its server does not respond or its record cannot be
    /// read; the call fails only if that is so for all of them. It waits for at most an eighth of
    /// the shortest lease, and at least 750 ms, but not longer than the response timeout.
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.renew_all(leases).await
    }

    /// A recording of at least 64 KiB takes two round trips if the server can compare a value
    /// before it replaces it (Valkey 8.1 or later), and much less of the server's time.
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        match self.replicas {
            Some(replicas) => Box::pin(self.complete_replicated(replicas, lease, recording)).await,
            None => match self.complete_on(ConnectionRole::Requests, lease, recording).await {
                Ok((passed, _)) => Ok(fence(passed)),
                Err(failure) => Err(failure.into_error("complete")),
            },
        }
    }

    /// A note with a step is not sent again after its acknowledgment was lost, because that would
    /// add the step twice. A note with an input takes one more round trip, which adds the attempt
    /// to the index that [`resumable`](Self::resumable) reads.
    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let mut only_progress = Note::default();
        only_progress.progress.clone_from(&note.progress);
        match self.replicas {
            Some(replicas) if *note != only_progress => {
                self.note_replicated(replicas, lease, note).await
            }
            _ => match self.note_on(ConnectionRole::Requests, lease, note).await {
                Ok((true, _)) => Ok(Fence::Passed),
                Ok((false, _)) => Ok(Fence::Fenced),
                Err(failure) => Err(failure.into_error("note")),
            },
        }
    }

    // A release, an abandonment or a resolution is not sent again: if the first one took effect,
    // the second finds a changed record and would return `Fenced`.

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.step("release", SendAgain::Never, &self.router.scripts.release, lease, &[]).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        if let (Some(replicas), Abandoned::Hold) = (self.replicas, policy) {
            return self.hold_replicated(replicas, lease).await;
        }
        let policy = [Arg::Number(abandoned_code(policy).into())];
        self.step("abandon", SendAgain::Never, &self.router.scripts.abandon, lease, &policy).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.read(id).await.map_err(|failure| failure.into_error("look up"))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        let args = match resolution {
            Resolution::Complete(recording) => &completion_args(recording)[..],
            Resolution::Release => &[],
        };
        let resolved = self
            .step("resolve", SendAgain::Never, &self.router.scripts.resolve, &seen, args)
            .await?;
        Ok(match resolved {
            Fence::Passed => ResolveOutcome::Resolved,
            Fence::Fenced => ResolveOutcome::Conflict,
        })
    }

    /// Does nothing and returns 0: the server removes recordings when their ttl expires, and
    /// abandoned claims an hour after that. If its clock is set back, they stay longer by the same
    /// time.
    async fn purge(&self, _limit: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Looks up at most 256 of the attempts that have noted an input, of any operation, so a page
    /// may have fewer ids than `limit` although it is not the last one. Records that cannot be read
    /// are skipped.
    ///
    /// # Errors
    /// Fails if the server does not respond; in a cluster, only if no operation was found.
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let found = self.find_resumable(operation, after, limit).await;
        found.map_err(|failure| failure.into_error("resumable"))
    }
}
