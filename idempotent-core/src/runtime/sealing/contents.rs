//! The contents of records, sealed and opened.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    error::StoreError,
    keyring::{Field, Keyring, OpenError, SealError, is_sealed, take_sealed},
    protocol::{Contents, Note, Rejection, Replacement, Resolution},
    record::{Record, RecordState},
    record_id::RecordId,
    recording::EncodedRecording,
    runtime::step_encoding,
};

/// What a value becomes that cannot be opened. It is refused like a sealed one, wherever it is
/// read.
const UNREADABLE: Bytes = Bytes::from_static(&[EncodedRecording::SEALED]);

/// The only place that seals what goes to a store, and opens what comes back.
#[derive(Clone)]
pub(in crate::runtime) struct Sealer {
    keyring: Arc<Keyring>,
}

impl Sealer {
    pub(in crate::runtime) fn new(keyring: Keyring) -> Self {
        Self { keyring: Arc::new(keyring) }
    }

    fn seal(&self, id: &RecordId, field: Field, value: &Bytes) -> Result<Bytes, StoreError> {
        if value.is_empty() {
            return Ok(Bytes::new());
        }
        self.keyring.seal(id, field, value).map_err(|error| match error {
            SealError::Nonce(_) => StoreError::transient("runtime", "seal a record", error),
            SealError::TooLong { .. } => StoreError::permanent("runtime", "seal a record", error),
        })
    }

    pub(super) fn seal_recording(
        &self,
        id: &RecordId,
        recording: &Bytes,
    ) -> Result<Bytes, StoreError> {
        self.seal(id, Field::Recording, recording)
    }

    pub(super) fn seal_note(&self, id: &RecordId, note: &Note) -> Result<Note, StoreError> {
        let step = self.seal(id, Field::Step, &note.step)?;
        let input = self.seal(id, Field::Input, &note.input)?;
        Ok(Note { step, input, ..note.clone() })
    }

    pub(super) fn seal_resolution(
        &self,
        id: &RecordId,
        resolution: &Resolution,
    ) -> Result<Resolution, StoreError> {
        Ok(match resolution {
            Resolution::Complete(recording) => {
                Resolution::Complete(self.seal_recording(id, recording)?)
            }
            Resolution::Release => Resolution::Release,
        })
    }

    pub(super) fn open_rejection(&self, id: &RecordId, rejection: Rejection) -> Rejection {
        match rejection {
            Rejection::Completed(recording) => {
                Rejection::Completed(self.open_or_unreadable(id, Field::Recording, &recording))
            }
            Rejection::InFlight { .. } | Rejection::Held { .. } | Rejection::Mismatch { .. } => {
                rejection
            }
        }
    }

    pub(super) fn open_record(&self, id: &RecordId, mut record: Record) -> Record {
        if let RecordState::Completed(recording) = &mut record.state {
            *recording = self.open_or_unreadable(id, Field::Recording, recording);
        }
        let notes = &mut record.notes;
        notes.steps = self.open_or_unreadable(id, Field::Step, &notes.steps);
        notes.input = self.open_or_unreadable(id, Field::Input, &notes.input);
        record
    }

    fn open_or_unreadable(&self, id: &RecordId, field: Field, value: &Bytes) -> Bytes {
        self.open(id, field, value).unwrap_or_else(|error| {
            tracing::error!(
                id = %id.short(), ?field, %error,
                "a part of a record cannot be opened; its operation is neither replayed nor run \
                 again"
            );
            UNREADABLE
        })
    }

    fn open(&self, id: &RecordId, field: Field, value: &Bytes) -> Result<Bytes, OpenError> {
        if value.is_empty() {
            return Ok(Bytes::new());
        }
        match field {
            Field::Recording | Field::Input => self.keyring.open(id, field, value),
            Field::Step => {
                let steps = split_steps(value)?;
                let open = |step: &Bytes| self.keyring.open(id, field, step);
                Ok(steps.iter().map(open).collect::<Result<Vec<_>, _>>()?.concat().into())
            }
        }
    }

    /// The replacement of what is not sealed, or is sealed with another key than new values are;
    /// `None` if there is nothing to replace.
    ///
    /// # Errors
    /// Fails if a part cannot be opened, or not be sealed. Then nothing may be replaced.
    pub(in crate::runtime) fn resealed(
        &self,
        id: &RecordId,
        record: &Record,
    ) -> Result<Option<Replacement>, ResealError> {
        let is = Contents::of(record);
        let (mut was, mut becomes) = (Contents::default(), Contents::default());
        if !self.is_current(&is.recording) {
            becomes.recording = self.sealed_again(id, Field::Recording, &is.recording)?;
            was.recording = is.recording;
        }
        if !self.is_current(&is.input) {
            becomes.input = self.sealed_again(id, Field::Input, &is.input)?;
            was.input = is.input;
        }
        let steps = split_steps(&is.steps)?;
        if steps.iter().any(|step| !self.is_current(step)) {
            let again = |step: &Bytes| self.sealed_again(id, Field::Step, step);
            let again = steps.iter().map(again).collect::<Result<Vec<_>, _>>()?;
            (was.steps, becomes.steps) = (is.steps, again.concat().into());
        }
        let replaces = was != Contents::default();
        Ok(replaces.then(|| Replacement::new(record.owner, was, becomes)))
    }

    /// Whether a value needs not be sealed again.
    fn is_current(&self, value: &Bytes) -> bool {
        value.is_empty() || self.keyring.is_current(value)
    }

    fn sealed_again(
        &self,
        id: &RecordId,
        field: Field,
        value: &Bytes,
    ) -> Result<Bytes, ResealError> {
        let opened = self.keyring.open(id, field, value)?;
        Ok(self.keyring.seal(id, field, &opened)?)
    }
}

/// The reason why a record could not be sealed again.
#[derive(Debug, thiserror::Error)]
pub(in crate::runtime) enum ResealError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// The steps of a record, of which some may be sealed.
fn split_steps(encoded: &Bytes) -> Result<Vec<Bytes>, OpenError> {
    let (mut steps, mut rest) = (Vec::new(), encoded.clone());
    while !rest.is_empty() {
        let before = rest.clone();
        if is_sealed(&rest) {
            steps.push(take_sealed(&mut rest).ok_or(OpenError::Cut)?);
        } else {
            step_encoding::take(&mut rest).ok_or(OpenError::Cut)?;
            steps.push(before.slice(..before.len().saturating_sub(rest.len())));
        }
    }
    Ok(steps)
}
