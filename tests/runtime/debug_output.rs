//! The `Debug` output of types that contain a response, which may end up in a log.

use bytes::Bytes;
use idempotent_core::{
    EncodedRecording, Fingerprint, OwnerToken, Record, RecordState,
    clock::Timestamp,
    protocol::{ClaimOutcome, Rejection, Resolution, Snapshot},
    runtime::{Admission, AttemptOutcome, Verdict},
    store::TransactionClaim,
    transition::{Change, Event, EventOutcome},
};
use idempotent_http::recording::{RecordedBody, Recording};

const SECRET: &str = "a-secret";

fn recording() -> Recording {
    let secret = Bytes::from_static(SECRET.as_bytes());
    Recording::new(
        201,
        vec![(Bytes::from_static(b"x-token"), secret.clone())],
        RecordedBody::Whole(secret),
    )
}

fn record(bytes: &Bytes) -> Record {
    let now = Timestamp::from_millis(1);
    let fingerprint = Fingerprint::from_bytes([1; Fingerprint::BYTES]);
    let mut record = Record::new(fingerprint, OwnerToken::from_bytes([1; 16]), now, now);
    record.state = RecordState::Completed(bytes.clone());
    record
}

#[test]
fn no_debug_output_contains_a_response() {
    let recording = recording();
    assert_eq!(
        format!("{recording:?}"),
        "Recording { status: 201, headers: 1, body: Whole(8 bytes) }"
    );
    let bytes = Bytes::from(recording.encode());
    let (record, rejection) = (record(&bytes), Rejection::Completed(bytes.clone()));
    let completed = ClaimOutcome::Rejected(rejection.clone());
    let (owner, at) = (record.owner, record.first_seen);
    let (verdict, resolution) = (
        Verdict::Rejected(Rejection::Completed(recording.encode())),
        Resolution::Complete(bytes.clone()),
    );
    let shown = [
        format!("{:?}", recording.body),
        format!("{:?}", EncodedRecording::from(&recording)),
        format!("{:?}", record.state),
        format!("{:?}", Snapshot::new(record.clone(), at)),
        format!("{completed:?}"),
        format!("{:?}", EventOutcome::Claim(completed.clone())),
        format!("{:?}", TransactionClaim::Rejected(rejection)),
        format!("{:?}", Admission::Rejected(verdict.clone())),
        format!("{:?}", AttemptOutcome::Fenced(verdict)),
        format!("{:?}", Event::Resolve(owner, &resolution)),
        format!("{:?}", Event::Complete(owner, &bytes)),
        format!("{:?}", Change::Put(record)),
    ];
    for shown in shown {
        // As text, or as a list of numbers.
        let has_secret = [SECRET, "x-token", "115, 101"].iter().any(|form| shown.contains(form));
        assert!(!has_secret && shown.contains("bytes"), "{shown}");
    }
}
