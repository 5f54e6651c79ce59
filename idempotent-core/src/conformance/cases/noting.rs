//! What a record says about its operation, and what its handler notes.

use bytes::Bytes;

use crate::{
    conformance::fixture::{Fixture, KeyUnderTest, granted, recording, text},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Note, Rejection, Resolution, ResolveOutcome},
    record::{Notes, Record, RecordState},
    record_id::RecordId,
    recording::EncodedRecording,
    scope::Principal,
    short_text::ShortText,
};

pub(super) fn encoded(status: u16) -> Bytes {
    let [high, low] = status.to_be_bytes();
    EncodedRecording::with_checksum(vec![EncodedRecording::WITH_STATUS, high, low]).into()
}

fn everything() -> Note {
    Note {
        reference: Some(text("pi_1")),
        progress: Some(text("1 of 2")),
        step: recording("charge;"),
        input: recording("input"),
        hold: false,
    }
}

fn noted(record: &Record) -> (Option<&str>, Option<&str>, &[u8], &[u8]) {
    let Notes { reference, progress, steps, input } = &record.notes;
    (reference.as_deref(), progress.as_deref(), steps, input)
}

pub(in crate::conformance) async fn a_record_says_what_it_is_about(fixture: Fixture) {
    let (key, request) = (fixture.key(), fixture.request());
    let lease = key.claimed(&request).await;
    let record = key.record().await.unwrap();
    assert_eq!(record.operation, request.operation);
    assert_eq!(record.principal, request.principal);
    assert_eq!((record.status, record.completed_at), (None, None));
    assert_eq!(noted(&record), (None, None, &[][..], &[][..]));
    fixture.advance_half_a_tick().await;
    assert_eq!(key.complete(&lease, &encoded(201)).await, Fence::Passed);
    let record = key.record().await.unwrap();
    assert_eq!((record.operation, record.principal), (request.operation, request.principal));
    assert_eq!(record.status, Some(201));
    let completed = record.completed_at.unwrap().duration_since(record.first_seen);
    assert!(completed >= fixture.tick() / 4 && completed < fixture.tick(), "{completed:?}");
}

pub(in crate::conformance) async fn a_claim_without_a_principal_has_none(fixture: Fixture) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let anonymous = Claim { principal: None, operation: text("ä"), ..request };
        key.claimed(&anonymous).await;
        let record = key.record().await.unwrap();
        assert_eq!((record.principal, record.operation), (None, text("ä")));
    }
}

pub(in crate::conformance) async fn the_first_completion_stays(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    assert_eq!(key.complete(&lease, &encoded(201)).await, Fence::Passed);
    let first = key.record().await.unwrap();
    fixture.advance_half_a_tick().await;
    assert_eq!(key.complete(&lease, &encoded(500)).await, Fence::Passed);
    let second = key.record().await.unwrap();
    assert_eq!((second.status, &second.state), (Some(201), &first.state));
    let took = |record: &Record| record.completed_at.unwrap().duration_since(record.first_seen);
    assert_eq!(took(&second), took(&first));
}

pub(in crate::conformance) async fn a_note_replaces_what_it_names_and_adds_its_step(
    fixture: Fixture,
) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        let before = key.record().await.unwrap();
        assert_eq!(key.note(&lease, &Note::default()).await, Fence::Passed);
        assert_eq!(key.record().await.unwrap(), before);
        assert_eq!(key.note(&lease, &everything()).await, Fence::Passed);
        let more = Note { progress: Some(text("2 of 2")), ..Note::step(recording("ledger")) };
        assert_eq!(key.note(&lease, &more).await, Fence::Passed);
        let record = key.record().await.unwrap();
        let expected = (Some("pi_1"), Some("2 of 2"), &b"charge;ledger"[..], &b"input"[..]);
        assert_eq!(noted(&record), expected);
        let unchanged = Record { notes: before.notes.clone(), ..record };
        assert_eq!(unchanged, before);
        assert_eq!(key.note(&lease, &Note::reference(text("pi_2"))).await, Fence::Passed);
        assert_eq!(key.note(&lease, &Note::input(recording("other"))).await, Fence::Passed);
        let record = key.record().await.unwrap();
        let expected = (Some("pi_2"), Some("2 of 2"), &b"charge;ledger"[..], &b"other"[..]);
        assert_eq!(noted(&record), expected);
    }
}

pub(in crate::conformance) async fn any_bytes_can_be_noted(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    let bytes: Bytes = (0..=u8::MAX).cycle().take(70_000).collect();
    let longest = text(&"\u{10ffff}".repeat(63));
    let note = Note {
        reference: Some(longest.clone()),
        progress: Some(text("it's \"$1\" \\ {now}")),
        input: bytes.clone(),
        ..Note::step(bytes.clone())
    };
    assert_eq!(key.note(&lease, &note).await, Fence::Passed);
    let record = key.record().await.unwrap();
    assert_eq!(record.notes.reference, Some(longest));
    assert_eq!(record.notes.progress, note.progress);
    assert!(record.notes.steps == bytes && record.notes.input == bytes);
}

pub(in crate::conformance) async fn a_completion_keeps_only_the_reference(fixture: Fixture) {
    for request in [fixture.request(), fixture.hold_request()] {
        let key = fixture.key();
        let lease = key.claimed(&request).await;
        assert_eq!(key.note(&lease, &everything()).await, Fence::Passed);
        assert_eq!(key.complete(&lease, &encoded(200)).await, Fence::Passed);
        let record = key.record().await.unwrap();
        assert_eq!(noted(&record), (Some("pi_1"), None, &[][..], &[][..]));
        assert_eq!(key.note(&lease, &everything()).await, Fence::Fenced);
        assert_eq!(key.record().await.unwrap(), record);
    }
}

pub(in crate::conformance) async fn a_takeover_keeps_the_notes(fixture: Fixture) {
    let key = fixture.key();
    let first = key.claimed(fixture.request()).await;
    assert_eq!(key.note(&first, &everything()).await, Fence::Passed);
    fixture.expire_leases().await;
    // A note does not test the lease.
    assert_eq!(key.note(&first, &Note::step(recording("ledger"))).await, Fence::Passed);
    let next = Claim { principal: None, operation: text("other"), ..fixture.request() };
    assert_eq!(key.claim(&next).await, granted(2));
    let record = key.record().await.unwrap();
    assert_eq!(record.operation, fixture.request().operation);
    assert_eq!(record.principal, Some(Principal::from_bytes([7; 16])));
    let expected = (Some("pi_1"), Some("1 of 2"), &b"charge;ledger"[..], &b"input"[..]);
    assert_eq!(noted(&record), expected);
    key.assert_fenced(first.owner).await;
    assert_eq!(key.abandon(&key.lease(next.owner), Abandoned::Retry).await, Fence::Passed);
    assert_eq!(noted(&key.record().await.unwrap()), expected);
    let absent = fixture.key();
    absent.assert_fenced(first.owner).await;
}

pub(in crate::conformance) async fn an_expired_key_starts_without_notes(fixture: Fixture) {
    let [abandoned, completed] = [fixture.key(), fixture.key()];
    for key in [&abandoned, &completed] {
        let lease = key.claimed(fixture.request()).await;
        assert_eq!(key.note(&lease, &everything()).await, Fence::Passed);
    }
    let lease = completed.lease(completed.record().await.unwrap().owner);
    assert_eq!(completed.complete(&lease, &encoded(200)).await, Fence::Passed);
    fixture.expire_records().await;
    for key in [&abandoned, &completed] {
        let request = Claim { operation: text("new"), principal: None, ..fixture.other_request() };
        key.claimed(&request).await;
        let record = key.record().await.unwrap();
        assert_eq!(noted(&record), (None, None, &[][..], &[][..]));
        assert_eq!((record.operation, record.principal), (text("new"), None));
        assert_eq!((record.status, record.completed_at), (None, None));
    }
}

pub(in crate::conformance) async fn after_the_point_of_no_return_the_key_is_held(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    let note = Note { hold: true, ..Note::reference(text("pi_1")) };
    assert_eq!(key.note(&lease, &note).await, Fence::Passed);
    assert_eq!(key.record().await.unwrap().abandoned, Abandoned::Hold);
    // A later note does not take it back.
    assert_eq!(key.note(&lease, &Note::progress(text("half"))).await, Fence::Passed);
    let reference = Some(text("pi_1"));
    let in_flight = key.claim(&fixture.request()).await;
    let ClaimOutcome::Rejected(Rejection::InFlight { reference: noted, .. }) = in_flight else {
        unreachable!("the key is {in_flight:?}")
    };
    assert_eq!(noted, reference);
    fixture.expire_leases().await;
    let held =
        |newly| ClaimOutcome::Rejected(Rejection::Held { newly, reference: reference.clone() });
    assert_eq!(key.claim(&fixture.request()).await, held(true));
    assert_eq!(key.claim(&fixture.request()).await, held(false));
    assert_eq!(key.note(&lease, &Note::hold()).await, Fence::Fenced);
    fixture.expire_records().await;
    assert_eq!(key.record().await.unwrap().state, RecordState::Held);
    assert_eq!(key.claim(&fixture.request()).await, held(false));
    let resolution = Resolution::Complete(encoded(402));
    assert_eq!(key.resolve(&lease.owner, resolution).await, ResolveOutcome::Resolved);
    let record = key.record().await.unwrap();
    assert_eq!((record.status, record.notes.reference.clone()), (Some(402), reference));
    assert!(record.completed_at.is_some());
}

pub(in crate::conformance) async fn an_attempt_abandoned_past_the_point_of_no_return_is_held(
    fixture: Fixture,
) {
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    assert_eq!(key.note(&lease, &Note::hold()).await, Fence::Passed);
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Passed);
    assert_eq!(key.record().await.unwrap().state, RecordState::Held);
}

/// Whether the store can find the operations that can be resumed, as some cannot.
async fn finds_resumable(fixture: &Fixture) -> bool {
    let page = fixture.store().resumable(&fixture.request().operation, None, 1).await;
    !page.is_err_and(|error| error.is_unsupported())
}

/// The ids on all pages of an operation, in order.
async fn all_resumable(fixture: &Fixture, operation: &ShortText, limit: u32) -> Vec<RecordId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.store().resumable(operation, after.as_ref(), limit).await.unwrap();
        assert!(u32::try_from(page.ids.len()).unwrap() <= limit, "{page:?}");
        found.extend(page.ids);
        match page.next {
            Some(next) => assert!(after.replace(next).is_none_or(|before| before < next)),
            None => return found,
        }
    }
}

/// Whether the key is among those that can be resumed. Other users of the store may have some too.
async fn is_resumable(fixture: &Fixture, key: &KeyUnderTest) -> bool {
    let operation = fixture.request().operation;
    all_resumable(fixture, &operation, 1_000).await.contains(&key.id)
}

/// An operation of this name that was abandoned after it had noted its input.
async fn abandoned(fixture: &Fixture, operation: &ShortText) -> RecordId {
    let key = fixture.key();
    let lease = key.claimed(fixture.request().with_operation(operation.clone())).await;
    assert_eq!(key.note(&lease, &Note::input(recording("input"))).await, Fence::Passed);
    assert_eq!(key.abandon(&lease, Abandoned::Retry).await, Fence::Passed);
    key.id
}

/// A name that no other case uses.
fn unique_name(fixture: &Fixture) -> ShortText {
    text(&format!("POST /é/{}", fixture.key().id))
}

pub(in crate::conformance) async fn operations_are_resumed_by_their_name(fixture: Fixture) {
    if !finds_resumable(&fixture).await {
        return;
    }
    let [one, other] = [(); 2].map(|()| unique_name(&fixture));
    let expected = [abandoned(&fixture, &one).await, abandoned(&fixture, &other).await];
    for (operation, id) in [one, other].iter().zip(expected) {
        assert_eq!(all_resumable(&fixture, operation, 10).await, [id]);
    }
    assert!(all_resumable(&fixture, &unique_name(&fixture), 10).await.is_empty());
}

pub(in crate::conformance) async fn every_abandoned_operation_is_on_a_page(fixture: Fixture) {
    if !finds_resumable(&fixture).await {
        return;
    }
    let operation = unique_name(&fixture);
    let mut expected = Vec::new();
    for _ in 0..7 {
        expected.push(abandoned(&fixture, &operation).await);
    }
    expected.sort_unstable();
    for limit in [1, 3, 7, 8] {
        assert_eq!(all_resumable(&fixture, &operation, limit).await, expected, "{limit}");
    }
}

pub(in crate::conformance) async fn an_abandoned_operation_with_an_input_is_resumable(
    fixture: Fixture,
) {
    if !finds_resumable(&fixture).await {
        return;
    }
    let [live, without, held, unknown, done, expired] = [(); 6].map(|()| fixture.key());
    let lease = live.claimed(fixture.request()).await;
    assert!(!is_resumable(&fixture, &live).await);
    assert_eq!(live.note(&lease, &Note::input(recording("input"))).await, Fence::Passed);
    assert!(!is_resumable(&fixture, &live).await, "its lease has not expired");
    let lease = without.claimed(fixture.request()).await;
    assert_eq!(without.renew(&lease, fixture.tick()).await, Fence::Passed);
    let lease = held.claimed(fixture.hold_request()).await;
    assert_eq!(held.note(&lease, &Note::input(recording("input"))).await, Fence::Passed);
    let lease = unknown.claimed(fixture.request()).await;
    assert_eq!(unknown.note(&lease, &Note::input(recording("input"))).await, Fence::Passed);
    assert_eq!(unknown.abandon(&lease, Abandoned::Hold).await, Fence::Passed);
    let lease = done.claimed(fixture.request()).await;
    assert_eq!(done.note(&lease, &Note::input(recording("input"))).await, Fence::Passed);
    assert_eq!(done.complete(&lease, &encoded(200)).await, Fence::Passed);
    fixture.expire_leases().await;
    assert!(is_resumable(&fixture, &live).await);
    for other in [&without, &held, &unknown, &done] {
        assert!(!is_resumable(&fixture, other).await);
    }
    let next = fixture.request();
    assert_eq!(live.claim(&next).await, granted(2));
    assert!(!is_resumable(&fixture, &live).await, "another attempt has it");
    assert_eq!(live.abandon(&live.lease(next.owner), Abandoned::Retry).await, Fence::Passed);
    assert!(is_resumable(&fixture, &live).await, "abandoned again");
    let lease = expired.claimed(fixture.request()).await;
    assert_eq!(expired.note(&lease, &Note::input(recording("input"))).await, Fence::Passed);
    fixture.expire_records().await;
    assert!(!is_resumable(&fixture, &expired).await, "its ttl is over");
}
