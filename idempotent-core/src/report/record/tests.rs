use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::{fingerprint::Fingerprint, lease::OwnerToken, protocol::ListedRecord};

const NOW: Timestamp = Timestamp::from_millis(1_795_780_981_250);
const ID: RecordId = RecordId::from_bytes([0xab; 32]);

/// A record in flight that was claimed ten seconds ago, with a lease of 30 seconds.
fn record() -> Record {
    let first_seen = Timestamp::from_millis(NOW.as_millis() - 10_000);
    let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
    let owner = OwnerToken::from_bytes([0x0d; 16]);
    let expires_at = first_seen.after(Duration::from_secs(3600));
    let mut record = Record::new(fingerprint, owner, first_seen, expires_at);
    record.lease = Duration::from_secs(30);
    record.lease_until = first_seen.after(record.lease);
    record.operation = ShortText::truncated("POST /refunds");
    record.with_entry(Kind::Claimed, first_seen)
}

fn view(record: &Record) -> serde_json::Value {
    serde_json::to_value(RecordView::new(&ID, record, NOW)).unwrap()
}

#[test]
fn the_shape_of_a_record_is_fixed() {
    let mut record = record();
    record.abandoned = Abandoned::Hold;
    record.principal = Some(Principal::from_bytes([1; 16]));
    record.notes.reference = Some(ShortText::truncated("re_123"));
    record.notes.progress = Some(ShortText::truncated("charged"));
    record.notes.input = Bytes::from_static(b"secret");
    let expected = json!({
        "id": "ab".repeat(32),
        "operation": "POST /refunds",
        "state": "in_flight",
        "attempt": 1,
        "on_abandon": "hold",
        "lease": {
            "length_ms": 30_000,
            "until": "2026-11-27T12:03:21.250Z",
            "has_expired": false,
        },
        "reference": "re_123",
        "progress": "charged",
        "principal": "01".repeat(16),
        "first_seen": "2026-11-27T12:02:51.250Z",
        "age_ms": 10_000,
        "completed_at": null,
        "expires_at": "2026-11-27T13:02:51.250Z",
        "status": null,
        "completed_by_operator": false,
        "seen": SeenAttempt::of(&ID, &record).to_string(),
        "history": [{ "kind": "claimed", "at": "2026-11-27T12:02:51.250Z" }],
        "history_is_cut": false,
    });
    let view = view(&record);
    assert_eq!(view, expected);
    assert!(!view.to_string().contains("0d0d"), "the owner token is shown");
}

#[test]
fn the_state_depends_on_the_time() {
    let state = |change: &dyn Fn(&mut Record)| {
        let mut record = record();
        change(&mut record);
        (ShownState::of(&record, NOW), view(&record))
    };
    let completed = RecordState::Completed(Bytes::from_static(b"done"));
    let (shown, _) = state(&|_| {});
    assert_eq!(shown, ShownState::InFlight);
    let (shown, json) = state(&|record| record.lease_until = NOW);
    assert_eq!(shown, ShownState::Abandoned);
    assert_eq!(json["lease"]["has_expired"], true);
    let (shown, json) = state(&|record| record.lease_until = Timestamp::EPOCH);
    assert_eq!(shown, ShownState::Abandoned);
    assert_eq!(json["lease"]["until"], json!(null));
    let (shown, json) = state(&|record| {
        (record.lease_until, record.abandoned) = (NOW, Abandoned::Hold);
    });
    assert_eq!(shown, ShownState::Held, "although no request has found that yet");
    assert_eq!((&json["state"], &json["expires_at"]), (&json!("held"), &json!(null)));
    let (shown, json) = state(&|record| record.state = RecordState::Held);
    assert_eq!((shown, &json["lease"]), (ShownState::Held, &json!(null)));
    let (shown, json) = state(&|record| record.state = completed.clone());
    assert_eq!((shown, &json["lease"]), (ShownState::Completed, &json!(null)));
    for (state_in_store, lease_until) in
        [(completed.clone(), NOW), (RecordState::InFlight, Timestamp::EPOCH)]
    {
        let (shown, _) = state(&|record| {
            (record.state, record.lease_until) = (state_in_store.clone(), lease_until);
            record.expires_at = NOW;
        });
        assert_eq!(shown, ShownState::Expired);
    }
}

#[test]
fn a_completion_by_an_operator_is_shown() {
    let mut record = record();
    record.owner = OPERATOR;
    assert_eq!(view(&record)["completed_by_operator"], false);
    record.state = RecordState::Completed(Bytes::from_static(b"done"));
    assert_eq!(view(&record)["completed_by_operator"], true);
}

#[test]
fn a_history_is_cut_after_16_entries() {
    let whole = (0..15).fold(record(), |record, _| record.with_entry(Kind::TakenOver, NOW));
    assert_eq!(view(&whole)["history_is_cut"], false);
    let cut = whole.with_entry(Kind::TakenOver, NOW);
    let view = view(&cut);
    assert_eq!((&view["history_is_cut"], view["history"][0]["kind"].as_str()), {
        (&json!(true), Some("taken_over"))
    });
}

#[test]
fn every_kind_and_state_has_its_own_name() {
    let mut names: Vec<_> = Kind::ALL.iter().map(|kind| kind_name(*kind)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for state in ShownState::ALL {
        let json = serde_json::to_value(state).unwrap();
        assert_eq!(json.as_str().unwrap().replace('_', " "), state.to_string());
    }
}

#[test]
fn a_page_has_its_time_and_the_next_position() {
    let next = Some(PagePosition::after_id(&ID));
    let mut page = RecordPage::new(vec![ListedRecord::new(ID, record())], NOW, next);
    page.unreadable = vec![ID];
    let view = serde_json::to_value(RecordPageView::from(&page)).unwrap();
    assert_eq!(view["at"], "2026-11-27T12:03:01.250Z");
    assert_eq!(
        (&view["next"], &view["unreadable"][0]),
        (&ID.to_string().into(), &ID.to_string().into())
    );
    assert_eq!(view["records"][0]["id"], ID.to_string());
}
