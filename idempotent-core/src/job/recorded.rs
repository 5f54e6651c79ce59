//! The results of runs, as recordings.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::outcome::{Done, RunError};
use crate::{
    recording::{EncodedRecording, RecordedBody, Recording},
    runtime::Verdict,
};

/// The statuses of recordings, as operators and lookups see them.
const DONE: u16 = 200;
const FAILED: u16 = 422;
const HEADERS: &[(&[u8], &[u8])] = &[(b"content-type", b"application/json")];

/// Of the encoding of a result, so that a later release can use another one.
const VERSION: u8 = 1;

/// The maximum length of a recorded result.
const MAX_RESULT: usize = 1 << 20;

/// A recorded result, with the version of its encoding.
#[derive(Deserialize, Serialize)]
struct Versioned<T> {
    version: u8,
    result: T,
}

/// The version alone, so that the result of another version is not read.
#[derive(Deserialize)]
struct Version {
    version: u8,
}

/// Creates the recording of a result, for an operator who
/// [completes](crate::protocol::Resolution::Complete) a held key of a [job](super::Job).
///
/// # Errors
/// Fails if the result cannot be serialized as JSON.
pub fn recording_of<T: Serialize, E: Serialize>(
    result: Result<&T, &E>,
) -> Result<Recording, serde_json::Error> {
    let (status, body) = match result {
        Ok(value) => (DONE, encode(value)?),
        Err(error) => (FAILED, encode(error)?),
    };
    let headers = HEADERS.iter();
    let headers =
        headers.map(|(name, value)| (Bytes::from_static(name), Bytes::from_static(value)));
    Ok(Recording::new(status, headers.collect(), RecordedBody::Whole(body)))
}

fn encode<T: Serialize>(result: &T) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(&Versioned { version: VERSION, result }).map(Bytes::from)
}

/// Records a result, and returns it as later runs will read it, so that this run returns the same.
///
/// If the result cannot be recorded, or could not be read again, the recording has no body, since
/// the work is done and must not run again. The result is then returned as it is.
fn record<T: Serialize + DeserializeOwned>(status: u16, result: T) -> (EncodedRecording, T) {
    let recorded = |body: &RecordedBody| EncodedRecording::new(status, HEADERS, body);
    // A panic here would abandon the attempt, and the work would run again.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let body = encode(&result)?;
        let read = if body.len() <= MAX_RESULT { Some(read(&body)?) } else { None };
        Ok::<_, serde_json::Error>((body, read))
    }));
    match read {
        Ok(Ok((body, Some(read)))) => return (recorded(&RecordedBody::Whole(body)), read),
        Ok(Ok((body, None))) => {
            let (length, limit) = (body.len(), MAX_RESULT);
            tracing::warn!(
                length,
                limit,
                "the result of a run is too large to be recorded; later runs do not get it"
            );
        }
        Ok(Err(error)) => tracing::error!(
            %error,
            "the result of a run cannot be written as JSON and read again; later runs do not get it"
        ),
        Err(_) => tracing::error!(
            "the serialization of the result of a run panicked; later runs do not get it"
        ),
    }
    (recorded(&RecordedBody::Omitted), result)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).map(|Versioned { result, .. }| result)
}

/// The recording of a value that the work has returned, and the value as later runs read it.
pub(super) fn of_value<T: Serialize + DeserializeOwned>(value: T) -> (EncodedRecording, T) {
    record(DONE, value)
}

/// The recording of a final failure, and the failure as later runs read it.
pub(super) fn of_failure<E: Serialize + DeserializeOwned>(error: E) -> (EncodedRecording, E) {
    record(FAILED, error)
}

/// The result of a run whose work does not run, or whose own result does not count.
pub(super) fn result_of<T, E>(verdict: Verdict) -> Result<Done<T>, RunError<E>>
where
    T: DeserializeOwned,
    E: DeserializeOwned,
{
    let rejection = match verdict {
        Verdict::Rejected(rejection) => rejection,
        Verdict::Lost { reused } => return Err(RunError::Lost { reused }),
        Verdict::Unreadable => return Err(RunError::Unreadable { source: None }),
    };
    let Recording { status, body, .. } = match rejection.without_recording() {
        Err(recording) => recording,
        Ok(rejection) => return Err(RunError::Rejected(rejection)),
    };
    Err(match (status, &body) {
        (DONE, RecordedBody::Whole(body)) => {
            return decode(body).map(|value| Done { value, replayed: true });
        }
        (FAILED, RecordedBody::Whole(body)) => {
            let error = decode(body)?;
            RunError::Final { error, replayed: true }
        }
        (DONE | FAILED, RecordedBody::Omitted) => RunError::Omitted,
        _ => RunError::Unreadable { source: None },
    })
}

fn decode<T: DeserializeOwned, E>(body: &[u8]) -> Result<T, RunError<E>> {
    let unreadable = |source| RunError::Unreadable { source: Some(source) };
    let Version { version } = serde_json::from_slice(body).map_err(unreadable)?;
    if version != VERSION {
        return Err(RunError::Unreadable { source: None });
    }
    read(body).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Rejection;

    fn read(status: u16, body: &'static str) -> Result<Done<u32>, RunError> {
        let body = RecordedBody::Whole(Bytes::from_static(body.as_bytes()));
        result_of(Verdict::Rejected(Rejection::Completed(Recording::new(status, Vec::new(), body))))
    }

    #[test]
    fn the_encoding_of_a_result_is_fixed_for_ever() {
        let recording = recording_of(Ok::<_, &String>(&7)).unwrap();
        let body = RecordedBody::Whole(Bytes::from_static(br#"{"version":1,"result":7}"#));
        assert_eq!((recording.status, recording.body), (200, body));
        assert_eq!(EncodedRecording::from(&recording_of(Ok::<_, &()>(&7)).unwrap()), of_value(7).0);
        let failed = recording_of(Err::<&(), _>(&"declined")).unwrap();
        assert_eq!(EncodedRecording::from(&failed), of_failure("declined".to_owned()).0);
        assert_eq!(failed.status, 422);
    }

    #[test]
    fn only_results_of_this_version_and_type_are_read() {
        let done = read(200, r#"{"version":1,"result":7}"#).unwrap();
        assert_eq!((done.value, done.replayed), (7, true));
        let failed = read(422, r#"{"version":1,"result":"no"}"#).unwrap_err();
        assert!(matches!(failed, RunError::Final { error, replayed: true } if error == "no"));
        for (status, body, with_source) in [
            (200, r#"{"version":2,"result":7}"#, false),
            (200, r#"{"version":1,"result":"seven"}"#, true),
            (422, r#"{"version":1,"result":7}"#, true),
            (200, "7", true),
            (201, r#"{"version":1,"result":7}"#, false),
        ] {
            let error = read(status, body).unwrap_err();
            let RunError::Unreadable { source } = error else { panic!("{body}: {error:?}") };
            assert_eq!(source.is_some(), with_source, "{status} {body}");
        }
    }

    #[test]
    fn a_result_that_cannot_be_recorded_is_omitted() {
        let large = "a".repeat(MAX_RESULT);
        let unserializable = std::collections::HashMap::from([((1, 2), 3)]);
        for recording in [of_value(large).0, of_failure(unserializable).0] {
            let recording = Recording::decode(&recording.into()).unwrap();
            let result =
                result_of::<String, String>(Verdict::Rejected(Rejection::Completed(recording)));
            assert!(matches!(result, Err(RunError::Omitted)), "{result:?}");
        }
    }
}
