//! Abandoned operations that are resumed without their clients.

use crate::{
    error::StoreError,
    policy::Policy,
    record::Record,
    record_id::RecordId,
    runtime::{Attempt, Runtime},
};

impl Runtime {
    /// Claims a [resumable](Self::resumable) operation by the ordinary claim, in order to finish it
    /// from its [input](crate::runtime::decode_input). `accept` gets the record and returns the
    /// policy of its operation, or `None` if the caller cannot resume it.
    ///
    /// Returns the next attempt of the operation: run its remaining steps with
    /// [`Attempt::operation`], and end the attempt like any other. Returns `None` if the operation
    /// is not resumable any more, or if another attempt has it.
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
    ) -> Result<Option<Attempt>, StoreError> {
        let found = self.look_up(&id).await?;
        let Some(found) = found.filter(|found| found.record.is_resumable(found.at)) else {
            return Ok(None);
        };
        let Some(policy) = accept(&found.record) else { return Ok(None) };
        let Some(attempt) = self.take_over(id, found.record, &policy).await? else {
            return Ok(None);
        };
        // Between the look-up and the claim the operation may end; the claim is then granted as
        // the first of a new operation.
        if attempt.number() == 1 {
            attempt.release().await;
            return Ok(None);
        }
        Ok(Some(attempt))
    }
}
