//! Abandoned operations that are resumed without their clients.

use serde::de::DeserializeOwned;

use super::{
    Runtime,
    attempt::Attempt,
    operation::{self, NoteError},
};
use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::Lease,
    policy::Policy,
    protocol::{Claim, ClaimOutcome, ResumablePage},
    record::Record,
    record_id::RecordId,
    short_text::ShortText,
};

/// An abandoned operation that this process has claimed, in order to finish it.
///
/// Run its remaining steps with [`Attempt::operation`], and end the attempt like any other.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resumption {
    /// The next attempt of the operation.
    pub attempt: Attempt,
}

/// Decodes the input that an attempt has [set](super::Run::set_input), from the
/// [notes](crate::Notes) of its record.
///
/// # Errors
/// Fails if the input is not of this type, or was written by a later release.
pub fn decode_input<T: DeserializeOwned>(input: &[u8]) -> Result<T, NoteError> {
    operation::decode_input(input)
}

/// Returns whether an input was set [in this namespace](super::Run::set_input_in), or
/// without any. Applications with different namespaces may share a store and the names of their
/// operations.
#[must_use]
pub fn is_input_of(input: &[u8], namespace: &str) -> bool {
    operation::is_input_of(input, namespace)
}

impl Runtime {
    /// Returns one page of the operations with this name that can be [resumed](Self::resume): they
    /// were abandoned after they had stored their input, and are neither held nor past their ttl.
    ///
    /// The page begins after the id `after`, and has up to `limit` ids. A page with fewer ids is
    /// not necessarily the last one; see [`ResumablePage::next`].
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn resumable(
        &self,
        operation: &str,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let operation = ShortText::truncated(operation);
        self.parts.store.call(|store| store.resumable(&operation, after, limit)).await
    }

    /// Claims an abandoned operation by the ordinary claim, in order to finish it from its input.
    /// `accept` gets the record and returns the policy of its operation, or `None` if the caller
    /// cannot resume it.
    ///
    /// Returns `None` if the operation is not resumable any more, or if another attempt has it.
    ///
    /// # Errors
    /// Fails if the store fails. A claim that may have taken effect is given back in the
    /// background, or expires with its lease at the latest.
    ///
    /// # Cancel safety
    /// As for [`begin`](Self::begin).
    pub async fn resume(
        &self,
        id: RecordId,
        accept: impl FnOnce(&Record) -> Option<Policy>,
    ) -> Result<Option<Resumption>, StoreError> {
        let parts = &self.parts;
        parts.ready().await?;
        // An attempt of this process has ended, and the store does not have its end yet.
        if parts.deferrals.has(&id) {
            return Ok(None);
        }
        let found = parts.store.call(|store| store.look_up(&id)).await?;
        let Some(found) = found.filter(|found| found.record.is_resumable(found.at)) else {
            return Ok(None);
        };
        let record = found.record;
        let Some(policy) = accept(&record) else { return Ok(None) };
        let environment = parts.store.environment();
        let claim = Claim::new(record.fingerprint, parts.store.draw_owner()?)
            .with_policy(&policy)
            .with_principal(record.principal)
            .with_operation(record.operation.clone());
        let sent = environment.now();
        // Between the look-up and the claim another attempt may take over or end; the claim then
        // is not granted, or is granted as the first of a new operation.
        let ClaimOutcome::Granted { attempt: number } = parts.claims.send(&id, &claim).await?
        else {
            return Ok(None);
        };
        let lease = Lease { id, owner: claim.owner };
        parts.renewer.leases.remove_superseded(&lease);
        parts.renewer.leases.insert(lease, policy.lease, sent);
        let digest = RequestDigest::unknown();
        let attempt =
            Attempt::new(parts.clone(), id, claim, digest, (number, sent), policy.abandoned);
        if number == 1 {
            attempt.release().await;
            return Ok(None);
        }
        Ok(Some(Resumption { attempt }))
    }
}
