//! The results of runs, as recordings.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Serialize, de::DeserializeOwned};

use super::outcome::{Done, RunError};
use crate::{recording::EncodedRecording, runtime::Verdict};

/// The version of the recording of a result: an outcome follows, then the result as JSON. A result
/// that is omitted has no JSON. Version 1 is that of an HTTP response.
const VERSION: u8 = 2;
/// The outcomes of a run.
const DONE: u8 = b'd';
const FAILED: u8 = b'f';

/// The maximum length of a recorded result.
const MAX_RESULT: usize = 1 << 20;

/// Creates the recording of a result, for an operator who
/// [completes](crate::protocol::Resolution::Complete) a held key of a [job](super::Job).
///
/// # Errors
/// Fails if the result cannot be serialized as JSON.
pub fn recording_of<T: Serialize, E: Serialize>(
    result: Result<&T, &E>,
) -> Result<EncodedRecording, serde_json::Error> {
    match result {
        Ok(value) => encode(DONE, value),
        Err(error) => encode(FAILED, error),
    }
    .map(encoded)
}

/// The content of a recording, with room for its checksum.
fn encode<T: Serialize>(outcome: u8, result: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut content = Vec::with_capacity(128);
    content.extend([VERSION, outcome]);
    serde_json::to_writer(&mut content, result)?;
    Ok(content)
}

fn encoded(content: Vec<u8>) -> EncodedRecording {
    EncodedRecording::with_checksum(content).shortened_by(|recording| {
        let content = recording.content();
        content.get(..2).map(|outcome| EncodedRecording::with_checksum(outcome.to_vec()))
    })
}

/// Records a result, and returns it as later runs will read it, so that this run returns the same.
///
/// If the result cannot be recorded, or could not be read again, the recording omits it, since
/// the work is done and must not run again. The result is then returned as it is.
fn record<T: Serialize + DeserializeOwned>(outcome: u8, result: T) -> (EncodedRecording, T) {
    // A panic here would abandon the attempt, and the work would run again.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let content = encode(outcome, &result)?;
        let json = content.get(2..).unwrap_or_default();
        let read =
            if json.len() <= MAX_RESULT { Some(serde_json::from_slice(json)?) } else { None };
        Ok::<_, serde_json::Error>((content, read))
    }));
    match read {
        Ok(Ok((content, Some(read)))) => return (encoded(content), read),
        Ok(Ok((content, None))) => {
            let (length, limit) = (content.len(), MAX_RESULT);
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
    (EncodedRecording::with_checksum(vec![VERSION, outcome]), result)
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
    match rejection.without_recording() {
        Err(recording) => decode(&recording.content()),
        Ok(rejection) => Err(RunError::Rejected(rejection)),
    }
}

fn decode<T, E>(content: &[u8]) -> Result<Done<T>, RunError<E>>
where
    T: DeserializeOwned,
    E: DeserializeOwned,
{
    let unreadable = |source| RunError::Unreadable { source: Some(source) };
    match content {
        [VERSION, DONE | FAILED] => Err(RunError::Omitted),
        [VERSION, DONE, value @ ..] => {
            let value = serde_json::from_slice(value).map_err(unreadable)?;
            Ok(Done { value, replayed: true })
        }
        [VERSION, FAILED, error @ ..] => {
            let error = serde_json::from_slice(error).map_err(unreadable)?;
            Err(RunError::Final { error, replayed: true })
        }
        _ => Err(RunError::Unreadable { source: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Rejection;

    fn read(content: &[u8]) -> Result<Done<u32>, RunError> {
        let recording = EncodedRecording::with_checksum(content.to_vec());
        result_of(Verdict::Rejected(Rejection::Completed(recording)))
    }

    #[test]
    fn the_encoding_of_a_result_is_fixed_for_ever() {
        let done = recording_of(Ok::<_, &()>(&7)).unwrap();
        assert_eq!(done.content(), &b"\x02d7"[..]);
        assert_eq!(done, of_value(7).0);
        let failed = recording_of(Err::<&(), _>(&"declined")).unwrap();
        assert_eq!(failed.content(), &b"\x02f\"declined\""[..]);
        assert_eq!(failed, of_failure("declined".to_owned()).0);
    }

    #[test]
    fn only_results_of_this_version_and_type_are_read() {
        let done = read(b"\x02d7").unwrap();
        assert_eq!((done.value, done.replayed), (7, true));
        let failed = read(b"\x02f\"no\"").unwrap_err();
        assert!(matches!(failed, RunError::Final { error, replayed: true } if error == "no"));
        let others: [(&[u8], bool); 7] = [
            (b"\x03d7", false),
            (b"\x02x7", false),
            (b"\x02", false),
            (b"\x02d\"seven\"", true),
            (b"\x02f7", true),
            (b"\x02d7,", true),
            // A response with the status 200 and the body `7`.
            (b"\x01\0\xc8\x01\0\x017", false),
        ];
        for (content, with_source) in others {
            let error = read(content).unwrap_err();
            let RunError::Unreadable { source } = error else { panic!("{content:?}: {error:?}") };
            assert_eq!(source.is_some(), with_source, "{content:?}");
        }
    }

    #[test]
    fn a_result_that_cannot_be_recorded_is_omitted() {
        let large = "a".repeat(MAX_RESULT);
        let unserializable = std::collections::HashMap::from([((1, 2), 3)]);
        let shortened = of_value(7).0.shortened().unwrap();
        for recording in [of_value(large).0, of_failure(unserializable).0, shortened] {
            let result =
                result_of::<String, String>(Verdict::Rejected(Rejection::Completed(recording)));
            assert!(matches!(result, Err(RunError::Omitted)), "{result:?}");
        }
    }
}
