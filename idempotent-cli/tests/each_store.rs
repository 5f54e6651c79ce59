//! The whole work of an operator, on each store.

use idempotent_core::{Abandoned, EncodedRecording, RecordState, protocol::Fence};
use idempotent_http::recording::{RecordedBody, Recording};

use crate::backend::{Backend, NAMESPACE, OPERATION, id};

const REASON: &[&str] = &["--reason", "as the bank's books say", "--yes"];

#[tokio::test]
async fn a_killed_refund_in_sqlite_is_found_and_resolved() {
    operate(&Backend::sqlite().await).await;
}

#[tokio::test]
async fn a_killed_refund_in_postgres_is_found_and_resolved() {
    operate(&Backend::postgres().await).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn a_killed_refund_in_mysql_is_found_and_resolved() {
    operate(&Backend::mysql().await).await;
}

#[tokio::test]
async fn a_killed_refund_in_redis_is_found_and_resolved() {
    operate(&Backend::redis().await).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_refund_in_dynamodb_is_found_and_resolved() {
    operate(&Backend::dynamodb().await).await;
}

async fn operate(backend: &Backend) {
    assert_eq!(backend.program(&["migrate"]).json()["migrated"], true);
    find(backend).await;
    resolve(backend).await;
    forget(backend).await;
    erase(backend).await;
    look_after(backend).await;
}

async fn find(backend: &Backend) {
    let held = backend.held("k-1", "re_123").await;
    let running = backend.claimed("k-2", Abandoned::Hold).await;
    let list = backend.program(&["list"]).json();
    let ids = |list: &serde_json::Value| {
        let records = list["records"].as_array().unwrap().iter();
        records.map(|record| record["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&list), [held.to_string(), running.id.to_string()]);
    let list = backend.program(&["list", "--state", "held", "--reference", "re_123"]).json();
    assert_eq!(ids(&list), [held.to_string()]);
    assert_eq!(list["records"][0]["state"], "held");
    let text = backend.program(&["list"]).text();
    assert!(text.contains(&held.to_string()) && text.contains("in flight"), "{text}");
    let digits = held.short().to_string();
    let by_key = ["show", "--key", "k-1", "--operation", OPERATION, "--scope", "user:alice"];
    let by_key = [&by_key[..], &["--namespace", NAMESPACE]].concat();
    for selection in [&["show", &digits[..7]][..], &["show", "--reference", "re_123"], &by_key] {
        assert_eq!(backend.program(selection).json()["id"], held.to_string(), "{selection:?}");
    }
    let story = backend.program(&["explain", &digits]).text();
    for part in ["The first attempt claimed the key.", "The key is held", "reference re_123"] {
        assert!(story.contains(part), "{story}");
    }
    let completed = backend.store.complete(&running, &Default::default()).await.unwrap();
    assert_eq!(completed, Fence::Passed);
}

async fn resolve(backend: &Backend) {
    let id = id("k-1");
    let text = id.to_string();
    let seen = backend.program(&["show", &text]).json()["seen"].as_str().unwrap().to_owned();
    let with = |seen: &str, more: &[&str]| {
        let response = ["--status", "201", "--content-type", "application/json", "--body", "{}"];
        let resolve = [&["resolve", &text, "--seen", seen][..], &response, more].concat();
        backend.program(&resolve)
    };
    let error = with("0000000000000000", REASON).fails(4);
    assert!(error.contains("not the one that was seen"), "{error}");
    let error = with(&seen, &REASON[..2]).fails(2);
    assert!(error.contains("--yes"), "{error}");
    let decision = with(&seen, REASON).json();
    assert_eq!(
        (&decision["before"], &decision["after"]),
        (&"held".into(), &"completed 201".into())
    );
    let error = with(&seen, REASON).fails(4);
    assert!(error.contains("seen"), "{error}");
    let error = backend.program(&[&["release", &text][..], REASON].concat()).fails(4);
    assert!(error.contains("completed"), "{error}");
    // What clients get.
    let record = backend.store.look_up(&id).await.unwrap().unwrap().record;
    let RecordState::Completed(recording) = record.state else { panic!("{record:?}") };
    let recording = Recording::decode(&EncodedRecording::verify(recording).unwrap()).unwrap();
    assert_eq!((recording.status, recording.body), (201, RecordedBody::Whole("{}".into())));
    let shown = backend.program(&["show", &text]).json();
    assert_eq!(shown["recording"]["headers"][0]["value"], "application/json");
    assert_eq!(shown["recording"]["body"]["text"], serde_json::Value::Null);
    let shown = backend.program(&["show", &text, "--body"]).json();
    assert_eq!(shown["recording"]["body"]["text"], "{}");
    let entry = &backend.program(&["log", "--id", &text[..8]]).json()["entries"][0];
    assert_eq!((&entry["actor"], &entry["action"]), (&"ada".into(), &"complete".into()));
    assert_eq!(entry["reason"], "as the bank's books say");
}

async fn forget(backend: &Backend) {
    let id = id("k-1").to_string();
    let held = backend.held("k-3", "re_124").await.to_string();
    let error = backend.program(&[&["forget", &held][..], REASON].concat()).fails(4);
    assert!(error.contains("held"), "{error}");
    let actor = ["--actor", "bob", "--reason", "test data", "--yes"];
    backend.program(&[&["release", &held][..], &actor].concat()).text();
    backend.program(&["show", &held]).fails(3);
    backend.program(&[&["forget", &id][..], REASON].concat()).text();
    backend.program(&["show", &id]).fails(3);
    let story = backend.program(&["explain", &id]).text();
    for part in ["ada completed the held operation", "ada removed the record", "no record of this"]
    {
        assert!(story.contains(part), "{story}");
    }
    let log = backend.program(&["log"]).text();
    assert!(log.contains("test data") && log.contains(&held), "{log}");
}

async fn erase(backend: &Backend) {
    for number in 0..5 {
        backend.completed(&format!("done-{number}")).await;
    }
    let held = backend.held("k-4", "re_125").await;
    let running = backend.claimed("k-5", Abandoned::Retry).await;
    let erase = |more: &[&str]| {
        let erase = ["erase", "--scope", "user:alice", "--reason", "asked to be forgotten"];
        backend.program(&[&erase[..], more].concat())
    };
    erase(&[]).fails(2);
    let erased = erase(&["--yes"]).json();
    // With the record of an earlier test.
    assert_eq!(erased["erased"], 6);
    let left = erased["left"].as_array().unwrap().iter();
    let mut left: Vec<_> = left.map(|record| record["id"].as_str().unwrap()).collect();
    left.sort_unstable();
    let mut expected = [held.to_string(), running.id.to_string()];
    expected.sort_unstable();
    assert_eq!(left, expected);
    assert_eq!(erase(&["--yes", "--live"]).json()["erased"], 2);
    let error = erase(&["--yes"]).fails(3);
    assert!(error.contains("fingerprint keys"), "{error}");
    assert_eq!(backend.program(&["list", "--all"]).json()["records"], serde_json::json!([]));
}

async fn look_after(backend: &Backend) {
    backend.held("k-6", "re_126").await;
    let stats = backend.program(&["stats"]).json();
    assert_eq!((&stats["held"], &stats["in_flight"]), (&1.into(), &0.into()));
    assert!(stats["oldest_held"].is_string(), "{stats}");
    assert_eq!(backend.program(&["purge"]).json()["purged"], 0);
    let found = backend.program(&["doctor"]).json();
    let checks = found["checks"].as_array().unwrap();
    assert!(checks.len() == 5 && checks.iter().all(|check| check["is_passed"] == true), "{found}");
    // The emulator of DynamoDB measures no sizes.
    let least = u64::from(found["store"]["server"] != "Amazon DynamoDB");
    assert!(found["store"]["sizes"][0]["bytes"].as_u64().unwrap() >= least, "{found}");
    assert!(!found["store"]["server"].as_str().unwrap().is_empty());
    assert!(found["clock"]["ahead_ms"].as_i64().unwrap().abs() < 60_000, "{found}");
    assert_eq!(found["records"]["held"], 1);
}
