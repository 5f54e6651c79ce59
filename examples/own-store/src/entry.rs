//! A record as JSON.

use std::{error::Error, io, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, History, OwnerToken, Principal, Record, RecordState, ShortText,
    clock::{Timestamp, millis},
};
use serde::{Deserialize, Serialize};

/// The content of a file. Times are in milliseconds since the Unix epoch.
#[derive(Serialize, Deserialize)]
pub(crate) struct Entry {
    operation: String,
    state: State,
    attempt: u32,
    hold: bool,
    lease: u64,
    lease_until: u64,
    first_seen: u64,
    expires_at: u64,
    completed_at: Option<u64>,
    status: Option<u16>,
    reference: Option<String>,
    progress: Option<String>,
    owner: [u8; 16],
    principal: Option<[u8; 16]>,
    fingerprint: Vec<u8>,
    steps: Vec<u8>,
    input: Vec<u8>,
    history: String,
}

#[derive(Serialize, Deserialize)]
enum State {
    InFlight,
    Held,
    Completed(Vec<u8>),
}

impl Entry {
    pub(crate) fn encode(record: Record) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Self::of(record))?)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::InvalidData`] if these bytes are not one.
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<Record> {
        serde_json::from_slice::<Self>(bytes).map_err(invalid)?.into_record()
    }

    fn of(record: Record) -> Self {
        let text = |text: ShortText| text.as_str().to_owned();
        Self {
            operation: text(record.operation),
            state: match record.state {
                RecordState::InFlight => State::InFlight,
                RecordState::Held => State::Held,
                RecordState::Completed(recording) => State::Completed(recording.to_vec()),
            },
            attempt: record.attempt,
            hold: record.abandoned == Abandoned::Hold,
            lease: millis(record.lease),
            lease_until: record.lease_until.as_millis(),
            first_seen: record.first_seen.as_millis(),
            expires_at: record.expires_at.as_millis(),
            completed_at: record.completed_at.map(Timestamp::as_millis),
            status: record.status,
            reference: record.notes.reference.map(text),
            progress: record.notes.progress.map(text),
            owner: *record.owner.as_bytes(),
            principal: record.principal.map(|principal| *principal.as_bytes()),
            fingerprint: record.fingerprint.to_bytes().to_vec(),
            steps: record.notes.steps.to_vec(),
            input: record.notes.input.to_vec(),
            history: record.history.encode(),
        }
    }

    fn into_record(self) -> io::Result<Record> {
        let text = |text: String| ShortText::new(&text).map_err(invalid);
        let fingerprint = self.fingerprint.try_into();
        let fingerprint = fingerprint.map_err(|_| invalid("a fingerprint of another length"))?;
        let mut record = Record::new(
            Fingerprint::from_bytes(fingerprint),
            OwnerToken::from_bytes(self.owner),
            Timestamp::from_millis(self.first_seen),
            Timestamp::from_millis(self.expires_at),
        );
        record.operation = text(self.operation)?;
        record.state = match self.state {
            State::InFlight => RecordState::InFlight,
            State::Held => RecordState::Held,
            State::Completed(recording) => RecordState::Completed(Bytes::from(recording)),
        };
        record.attempt = self.attempt;
        record.abandoned = if self.hold { Abandoned::Hold } else { Abandoned::Retry };
        record.lease = Duration::from_millis(self.lease);
        record.lease_until = Timestamp::from_millis(self.lease_until);
        record.completed_at = self.completed_at.map(Timestamp::from_millis);
        record.status = self.status;
        record.notes.reference = self.reference.map(text).transpose()?;
        record.notes.progress = self.progress.map(text).transpose()?;
        record.principal = self.principal.map(Principal::from_bytes);
        record.notes.steps = self.steps.into();
        record.notes.input = self.input.into();
        record.history = History::decode(&self.history).map_err(invalid)?;
        Ok(record)
    }
}

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
