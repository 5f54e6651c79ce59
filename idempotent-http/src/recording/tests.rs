use proptest::{collection::vec, prelude::*};

use super::*;

fn recordings() -> impl Strategy<Value = Recording> {
    let bytes = || vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let body = prop_oneof![
        Just(RecordedBody::None),
        Just(RecordedBody::Omitted),
        bytes().prop_map(RecordedBody::Whole)
    ];
    let trace = (any::<[u8; 16]>(), any::<[u8; 8]>())
        .prop_map(|(trace_id, span_id)| TraceContext { trace_id, span_id });
    let headers = vec((bytes(), bytes()), 0..5);
    (any::<u16>(), headers, body, any::<bool>(), prop::option::of(trace)).prop_map(
        |(status, headers, body, redacted, trace)| {
            let recording = Recording::new(status, headers, body).with_trace(trace);
            Recording { redacted, ..recording }
        },
    )
}

proptest! {
    #[test]
    fn an_encoded_recording_is_decoded(recording in recordings()) {
        prop_assert_eq!(Recording::decode(&recording.encode()), Ok(recording));
    }

    #[test]
    fn any_content_is_decoded_or_refused(content in vec(any::<u8>(), 0..200)) {
        let _ = Recording::decode(&EncodedRecording::with_checksum(content));
    }
}

#[test]
fn a_later_version_is_refused_by_name() {
    assert_eq!(
        Recording::decode(&EncodedRecording::with_checksum(vec![2, 0, 200, 0])),
        Err(RecordingError::UnknownVersion { version: 2 })
    );
}

#[test]
fn the_first_version_stays_readable() {
    let location = (Bytes::from_static(b"location"), Bytes::from_static(b"/p/1"));
    let body = RecordedBody::Whole(Bytes::from_static(b"{}"));
    let recording = Recording::new(201, vec![location], body);
    let trace = TraceContext { trace_id: [0xab; 16], span_id: [0xcd; 8] };
    let sealed = |written: &[&[u8]]| EncodedRecording::with_checksum(written.concat());
    let rest: &[u8] = b"\x01\x08location\x04/p/1\x02{}";
    assert_eq!(recording.encode(), sealed(&[b"\x01\x00\xc9\x01", rest]));
    let traced = sealed(&[b"\x01\x00\xc9\x81", &[0xab; 16], &[0xcd; 8], rest]);
    assert_eq!(recording.clone().with_trace(Some(trace)).encode(), traced);
    let redacted = sealed(&[b"\x01\x00\xc9\x05", rest]);
    assert_eq!(Recording { redacted: true, ..recording }.encode(), redacted);
}

#[test]
fn what_exceeds_the_limit_is_omitted() {
    let body = RecordedBody::Whole(Bytes::from_static(b"body"));
    let headers: &[(&[u8], &[u8])] = &[(b"name", b"value")];
    let within =
        |limit| Recording::decode(&encode_within(limit, 200, headers, &body, None)).unwrap();
    assert_eq!((within(13).headers.len(), within(13).body), (1, body.clone()));
    assert_eq!((within(12).headers.len(), within(12).body), (1, RecordedBody::Omitted));
    assert_eq!((within(8).headers.len(), within(8).body), (0, RecordedBody::Omitted));
}
