use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::{
    fingerprint::Fingerprint,
    history::{History, Kind},
    lease::OwnerToken,
    policy::Abandoned,
    protocol::{Actor, AuditEntry, AuditedState},
    record::RecordState,
    short_text::ShortText,
    transition::OPERATOR,
};

const ID: RecordId = RecordId::from_bytes([0xab; 32]);
/// 2026-11-27 12:03:01.250 UTC
const START: Timestamp = Timestamp::from_millis(1_795_780_981_250);

fn after(seconds: u64) -> Timestamp {
    START.after(Duration::from_secs(seconds))
}

/// A record of a refund that was claimed at the start, with a lease of 30 seconds.
fn refund() -> Record {
    let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
    let owner = OwnerToken::from_bytes([1; 16]);
    let mut record = Record::new(fingerprint, owner, START, after(3600));
    (record.lease, record.lease_until) = (Duration::from_secs(30), after(30));
    record.operation = ShortText::truncated("POST /refunds");
    record.with_entry(Kind::Claimed, START)
}

fn completed(mut record: Record, status: Option<u16>, at: Timestamp) -> Record {
    record.state = RecordState::Completed(Bytes::from_static(b"done"));
    (record.status, record.completed_at) = (status, Some(at));
    record
}

fn decision(action: AuditAction, before: AuditedState, after: AuditedState) -> AuditEntry {
    let actor = Actor::new("ada", "as the bank's books say");
    AuditEntry { after, ..AuditEntry::new(action, ID, before, actor) }
}

fn story(record: Record, now: Timestamp, audited: &[Audited]) -> Story {
    explain(&ID, Some(&Snapshot::new(record, now)), audited)
}

fn texts(story: &Story) -> Vec<&str> {
    story.events.iter().map(|event| event.text.as_str()).collect()
}

#[test]
fn the_story_of_a_killed_refund_ends_with_what_to_do() {
    let mut record = refund();
    record.abandoned = Abandoned::Hold;
    record.notes.reference = Some(ShortText::truncated("re_123"));
    record.notes.progress = Some(ShortText::truncated("sent"));
    let story = story(record, after(60), &[]);
    assert_eq!(story.state, Some(ShownState::Held));
    let expected = "\
2026-11-27 12:03:01.250 UTC: The first attempt claimed the key.
2026-11-27 12:03:31.250 UTC: The lease of attempt 1 ended without an outcome: the key is held.
The key is held: it is not known whether the operation took effect. No request with this key runs \
until somebody resolves it.
Look up the reference re_123 where the operation has its effects (its last progress was “sent”). \
If it took effect, resolve the key with the response that the client should get; if it did not, \
release the key.";
    assert_eq!(story.to_string(), expected);
}

#[test]
fn a_key_without_a_reference_is_searched_by_its_time() {
    let mut record = refund().with_entry(Kind::Held, after(5));
    record.state = RecordState::Held;
    let advice = story(record.clone(), after(60), &[]).advice.unwrap();
    assert!(advice.contains("effects of POST /refunds from 2026-11-27 12:03:01.250 UTC on"));
    record.operation = ShortText::EMPTY;
    let advice = story(record, after(60), &[]).advice.unwrap();
    assert!(advice.contains("effects of the operation from"), "{advice}");
}

#[test]
fn every_kind_has_a_sentence_and_the_attempt_that_it_is_about() {
    let mut record = refund();
    record.attempt = 3;
    for (kind, seconds) in [
        (Kind::Abandoned, 1),
        (Kind::TakenOver, 2),
        (Kind::RenewalLost, 3),
        (Kind::Fenced, 4),
        (Kind::TakenOver, 5),
        (Kind::Held, 6),
        (Kind::Completed, 7),
        (Kind::Deferred, 8),
        (Kind::Resolved, 9),
    ] {
        record = record.with_entry(kind, after(seconds));
    }
    let kinds: Vec<_> = record.history.entries().map(|entry| entry.kind).collect();
    assert!(Kind::ALL.iter().all(|kind| kinds.contains(kind)));
    let story = story(completed(record, Some(201), after(7)), after(60), &[]);
    let expected = [
        "The first attempt claimed the key.",
        "Attempt 1 ended without an outcome: the next request may claim the key.",
        "Attempt 2 claimed the key, because the attempt before it had ended without an outcome.",
        "An earlier attempt could not renew its lease, because it no longer had the key.",
        "An attempt that no longer had the key tried to end the operation; nothing was changed.",
        "Attempt 3 claimed the key, because the attempt before it had ended without an outcome.",
        "Attempt 3 ended without a known outcome: the key is held.",
        "Attempt 3 completed the operation with status 201.",
        "The end of an attempt reached the store only after earlier calls had failed.",
        "An operator completed the operation with status 201.",
    ];
    assert_eq!(texts(&story), expected);
    let times: Vec<_> = story.events.iter().map(|event| event.at.unwrap().timestamp()).collect();
    assert_eq!(times, (0..10).map(after).collect::<Vec<_>>());
}

#[test]
fn every_state_has_a_conclusion() {
    let conclusion = |record: Record, now| {
        let story = story(record, now, &[]);
        assert_eq!(story.advice.is_some(), story.state == Some(ShownState::Held));
        (story.state.unwrap(), story.conclusion)
    };
    let mut running = refund();
    running.notes.progress = Some(ShortText::truncated("sent"));
    let expected = "Attempt 1 is in flight, and the key was first claimed 10 s ago. Its lease ends \
                    in 20 s unless it is renewed. Its last progress was “sent”.";
    assert_eq!(conclusion(running, after(10)), (ShownState::InFlight, expected.into()));
    let expected = "Attempt 1 ended without an outcome. The next request with this key runs the \
                    operation again.";
    assert_eq!(conclusion(refund(), after(60)), (ShownState::Abandoned, expected.into()));
    let mut resumable = refund();
    resumable.notes.input = Bytes::from_static(b"input");
    assert!(conclusion(resumable, after(60)).1.contains("a completer may run it"));
    let done = completed(refund(), Some(201), after(2));
    let expected = "The operation is completed. Requests with this key get the recorded response \
                    with status 201 until 2026-11-27 13:03:01.250 UTC.";
    assert_eq!(conclusion(done.clone(), after(60)), (ShownState::Completed, expected.into()));
    let result = completed(refund(), None, after(2));
    assert!(conclusion(result, after(60)).1.contains("get the recorded outcome until"));
    for (record, was) in [(done, "completed"), (refund(), "abandoned")] {
        let (state, conclusion) = conclusion(record, after(3600));
        let expected = format!("The record of the {was} operation has expired");
        assert!(state == ShownState::Expired && conclusion.starts_with(&expected), "{conclusion}");
    }
}

#[test]
fn what_only_time_has_done_is_told() {
    let lease = "The lease of attempt 1 ended without an outcome: the next request may claim the \
                 key.";
    let over = "The time of the record was over.";
    assert_eq!(texts(&story(refund(), after(60), &[]))[1..], [lease]);
    assert_eq!(texts(&story(refund(), after(3600), &[]))[1..], [lease, over]);
    // An attempt that was abandoned has ended its lease itself.
    let mut abandoned = refund().with_entry(Kind::Abandoned, after(3));
    abandoned.lease_until = Timestamp::EPOCH;
    let told = story(abandoned, after(60), &[]);
    assert_eq!(told.events.len(), 2);
    assert_eq!(told.state, Some(ShownState::Abandoned));
}

#[test]
fn a_resolution_is_told_with_who_and_why() {
    let held = AuditedState::Held;
    let by_ada = decision(AuditAction::Complete, held, AuditedState::Completed(Some(201)));
    let by_ada = Audited::new(by_ada, after(90));
    let record = refund().with_entry(Kind::Held, after(31)).with_entry(Kind::Resolved, after(90));
    let mut record = completed(record, Some(201), after(90));
    record.owner = OPERATOR;
    let others = RecordId::from_bytes([1; 32]);
    let other = AuditEntry::new(AuditAction::Erase, others, held, Actor::default());
    let told = story(record.clone(), after(91), &[Audited::new(other, after(4)), by_ada.clone()]);
    let resolved = "ada completed the held operation with status 201: “as the bank's books say”.";
    assert_eq!(texts(&told)[2..], [resolved], "once, and nothing about another record");
    assert!(told.conclusion.contains("completed by an operator"), "{}", told.conclusion);
    // A late entry of the history comes after it.
    let fenced = record.clone().with_entry(Kind::Fenced, after(95));
    assert_eq!(texts(&story(fenced, after(96), std::slice::from_ref(&by_ada)))[2], resolved);
    // So does a resolution of a record without a history.
    record.history = History::EMPTY;
    let told = story(record.clone(), after(91), &[by_ada]);
    let expected = ["The record has no history.", "The first attempt claimed the key.", resolved];
    assert_eq!(texts(&told), expected);
    let told = story(record, after(91), &[]);
    assert_eq!(texts(&told)[2], "An operator completed the operation with status 201.");
}

#[test]
fn decisions_about_earlier_records_of_the_key_come_first() {
    let earlier = |seconds: u64| Timestamp::from_millis(START.as_millis() - seconds * 1_000);
    let done = AuditedState::Completed(Some(500));
    let absent = AuditedState::Absent;
    let mut quiet = decision(AuditAction::Forget, done, absent);
    quiet.actor = Actor::default();
    // The latest first, as the log has them.
    let log = [
        Audited::new(decision(AuditAction::Erase, AuditedState::InFlight, absent), earlier(5)),
        Audited::new(quiet, earlier(10)),
        Audited::new(decision(AuditAction::Complete, AuditedState::Held, done), earlier(15)),
        Audited::new(decision(AuditAction::Release, AuditedState::Held, absent), earlier(20)),
    ];
    let record = completed(refund().with_entry(Kind::Completed, after(2)), Some(201), after(2));
    let expected = [
        "ada released the held key, so that the next request runs the operation: “as the bank's \
         books say”.",
        "ada completed the held operation with status 500: “as the bank's books say”.",
        "An operator removed the record, which was completed 500, so that its key is free: no \
         reason was given.",
        "ada erased the record, which was in flight, with the others of its principal: “as the \
         bank's books say”.",
        "The first attempt claimed the key.",
        "Attempt 1 completed the operation with status 201.",
    ];
    assert_eq!(texts(&story(record, after(60), &log)), expected);
    let absent = explain(&ID, None, &log);
    assert_eq!((texts(&absent), absent.state), (expected[..4].to_vec(), None));
    assert!(absent.conclusion.starts_with("There is no record of this key"));
}

#[test]
fn a_history_that_is_cut_says_so() {
    let mut record = refund();
    record.attempt = 40;
    for seconds in 1..40 {
        record = record.with_entry(Kind::TakenOver, after(seconds));
    }
    let told = story(record, after(41), &[]);
    let texts = texts(&told);
    assert_eq!(texts[0], "The first attempt claimed the key.");
    assert!(texts[1].starts_with("The history keeps the latest 16 entries"));
    assert!(texts[2].starts_with("Attempt 25 claimed the key"), "{texts:?}");
    assert!(texts[17].starts_with("Attempt 40 claimed the key"), "{texts:?}");
}

#[test]
fn the_json_of_a_story_has_a_fixed_shape() {
    let json = serde_json::to_value(explain(&ID, None, &[])).unwrap();
    let conclusion = "There is no record of this key: the next request with it runs the operation.";
    let expected = serde_json::json!({
        "id": "ab".repeat(32),
        "state": null,
        "events": [],
        "conclusion": conclusion,
        "advice": null,
    });
    assert_eq!(json, expected);
    let json = serde_json::to_value(story(refund(), after(1), &[])).unwrap();
    let event = serde_json::json!({
        "at": "2026-11-27T12:03:01.250Z",
        "text": "The first attempt claimed the key.",
    });
    assert_eq!((&json["state"], &json["events"][0]), (&"in_flight".into(), &event));
}
