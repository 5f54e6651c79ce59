//! Records that the application seals, on each store.

use std::fs;

use idempotent_core::{
    Digester, EncodedRecording, OnAbandon, Policy, RecordId, Runtime,
    protocol::{Contents, Rejection},
    runtime::{Admission, Attempt, AttemptOutcome, NoteError, Verdict},
};
use idempotent_http::recording::{RecordedBody, encode};
use test_support::subjects::sqlite::File;

use crate::{
    backend::{Backend, id, keyring_line},
    program::Program,
};

const SECRET: &str = "confidential";
const HOLD: Policy = Policy::DEFAULT.with_abandoned(OnAbandon::Hold);

#[tokio::test]
async fn sealed_records_in_sqlite_are_shown_resolved_and_sealed_again() {
    operate(&Backend::sqlite().await).await;
}

#[tokio::test]
async fn sealed_records_in_postgres_are_shown_resolved_and_sealed_again() {
    operate(&Backend::postgres().await).await;
}

#[tokio::test]
async fn sealed_records_in_redis_are_shown_resolved_and_sealed_again() {
    operate(&Backend::redis().await).await;
}

async fn operate(backend: &Backend) {
    backend.store.migrate().await.unwrap();
    before_the_keyring(backend).await;
    show(backend).await;
    resolve(backend).await;
    rotate(backend).await;
    lose_a_key(backend).await;
}

/// The text of a keyring whose first key seals.
fn keyring(ids: &[u8]) -> String {
    ids.iter().map(|id| keyring_line(*id) + "\n").collect()
}

fn with_keyring(backend: &Backend, ids: &[u8], arguments: &[&str]) -> Program {
    backend.program(arguments).with("IDEMPOTENCY_KEYRING", &keyring(ids))
}

async fn begin(runtime: &Runtime, key: &str) -> Admission {
    let request = Digester::new(["POST", "/refunds"]).finish();
    runtime.begin(id(key), request, &HOLD).await.unwrap()
}

async fn proceed(runtime: &Runtime, key: &str) -> Attempt {
    match begin(runtime, key).await {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("{verdict:?}"),
    }
}

fn response(status: u16, body: &'static str) -> EncodedRecording {
    encode(status, &[], &RecordedBody::Whole(body.into()))
}

async fn complete(runtime: &Runtime, key: &str) {
    let ended = proceed(runtime, key).await.complete(response(200, SECRET)).await;
    assert_eq!(ended, AttemptOutcome::Stored);
}

/// A held key whose handler has recorded a step.
async fn held(runtime: &Runtime, key: &str) {
    let attempt = proceed(runtime, key).await;
    let step = attempt.operation().step("charge");
    step.run(async |_| Ok::<_, NoteError>(SECRET.to_owned())).await.unwrap();
    attempt.abandon(idempotent_core::Abandoned::Hold).await;
}

async fn kept(backend: &Backend, id: &RecordId) -> Contents {
    Contents::of(&backend.store.look_up(id).await.unwrap().unwrap().record)
}

/// How many records were sealed, needed nothing, have changed, and cannot be opened.
fn counts(resealed: &serde_json::Value) -> [u64; 4] {
    let unreadable = resealed["unreadable"].as_array().unwrap().len() as u64;
    let [resealed, current, changed] =
        ["resealed", "current", "changed"].map(|name| resealed[name].as_u64().unwrap());
    [resealed, current, changed, unreadable]
}

/// What was stored before the first keyring is sealed.
async fn before_the_keyring(backend: &Backend) {
    let ids = [backend.completed("a").await, backend.completed("b").await];
    let reseal = |more: &[&str]| with_keyring(backend, &[1], &[&["reseal"], more].concat());
    let error = backend.program(&["reseal", "--yes"]).fails(2);
    assert!(error.contains("IDEMPOTENCY_KEYRING"), "{error}");
    let error = reseal(&[]).fails(2);
    assert!(error.contains("--yes"), "{error}");
    let file = File::new();
    let name = file.path().with_extension("keyring");
    fs::write(&name, keyring(&[1])).unwrap();
    let with_file = ["reseal", "--yes", "--keyring-file", name.to_str().unwrap()];
    assert_eq!(counts(&backend.program(&with_file).json()), [2, 0, 0, 0]);
    for id in &ids {
        assert_eq!(kept(backend, id).await.recording.first(), Some(&EncodedRecording::SEALED));
    }
    let text = reseal(&["--yes"]).text();
    assert!(text.contains("0 records sealed with the key 1; 2 needed nothing"), "{text}");
}

async fn show(backend: &Backend) {
    let id = id("a").to_string();
    let without = backend.program(&["show", &id, "--body"]).json();
    assert_eq!(
        (&without["status"], &without["recording"]["kind"]),
        (&200.into(), &"sealed".into())
    );
    let text = backend.program(&["show", &id, "--body"]).text();
    assert!(text.contains("sealed: give --keyring-file") && !text.contains(SECRET), "{text}");
    let text = with_keyring(backend, &[9], &["show", &id, "--body"]).text();
    assert!(text.contains("no key of the keyring opens it"), "{text}");
    let with = with_keyring(backend, &[1], &["show", &id, "--body"]).json();
    assert_eq!(with["recording"]["kind"], "response");
    assert_eq!(with["recording"]["body"]["text"], SECRET);
    for program in
        [backend.program(&["explain", &id]), with_keyring(backend, &[1], &["explain", &id])]
    {
        let story = program.text();
        assert!(story.contains("completed"), "{story}");
    }
}

/// The response of a resolution is sealed, and never stored as it is by surprise.
async fn resolve(backend: &Backend) {
    let application = backend.sealed(&[1]);
    held(&application, "c").await;
    // A record that has nothing sealed, beside others that are sealed.
    let attempt = proceed(&application, "d").await;
    attempt.abandon(idempotent_core::Abandoned::Hold).await;
    for key in ["c", "d"] {
        let id = id(key);
        let text = id.to_string();
        let resolve = ["resolve", &text, "--status", "201", "--body", "refunded", "--yes"];
        let resolve = [&resolve[..], &["--reason", "seen at the bank"]].concat();
        let error = backend.program(&resolve).fails(2);
        assert!(error.contains("--keyring-file") && error.contains("--unsealed"), "{error}");
        let error = with_keyring(backend, &[9], &resolve).fails(2);
        assert!(error.contains("opens none of the sealed records"), "{error}");
        assert_eq!(backend.program(&["show", &text]).json()["state"], "held");
        with_keyring(backend, &[1], &resolve).text();
        let recording = kept(backend, &id).await.recording;
        assert_eq!(recording.first(), Some(&EncodedRecording::SEALED));
        assert!(!recording.windows(8).any(|bytes| bytes == b"refunded"));
        let Admission::Rejected(verdict) = begin(&application, key).await else {
            panic!("{key} ran again")
        };
        let replay = Verdict::Rejected(Rejection::Completed(response(201, "refunded")));
        assert_eq!(verdict, replay);
    }
    held(&application, "e").await;
    let text = id("e").to_string();
    let resolve = ["resolve", &text, "--status", "204", "--reason", "x", "--yes", "--unsealed"];
    backend.program(&resolve).text();
    assert_ne!(kept(backend, &id("e")).await.recording.first(), Some(&EncodedRecording::SEALED));
}

async fn rotate(backend: &Backend) {
    let reseal = ["reseal", "--yes", "--seal-with", "2"];
    let resealed = with_keyring(backend, &[1, 2], &reseal).json();
    assert_eq!((&resealed["key"], counts(&resealed)), (&2.into(), [5, 0, 0, 0]));
    let Admission::Rejected(verdict) = begin(&backend.sealed(&[2]), "c").await else {
        panic!("it ran again")
    };
    let replay = Verdict::Rejected(Rejection::Completed(response(201, "refunded")));
    assert_eq!(verdict, replay);
    let doctor = with_keyring(backend, &[2], &["doctor"]).json();
    assert_eq!(
        doctor["sealing"],
        serde_json::json!({ "records": 5, "sealed": 5, "unreadable": 0 })
    );
    let text = backend.program(&["doctor"]).text();
    assert!(text.contains("5 of 5 records that were looked at are sealed"), "{text}");
}

/// What no key opens is left, and reported.
async fn lose_a_key(backend: &Backend) {
    complete(&backend.sealed(&[7]), "f").await;
    let before = kept(backend, &id("f")).await;
    let written = with_keyring(backend, &[3, 2], &["reseal", "--yes", "--json"]).run();
    assert_eq!(written.code, 1, "{written:?}");
    let resealed: serde_json::Value = serde_json::from_str(&written.out).unwrap();
    assert_eq!(counts(&resealed), [5, 0, 0, 1]);
    assert_eq!(resealed["unreadable"][0], id("f").to_string());
    assert_eq!(kept(backend, &id("f")).await, before);
    let written = with_keyring(backend, &[3], &["doctor"]).run();
    assert_eq!(written.code, 1, "{written:?}");
    assert!(written.out.contains("1 of 6 sealed records"), "{written:?}");
    let error = with_keyring(backend, &[8], &["reseal", "--yes"]).fails(2);
    assert!(error.contains("opens none of the sealed records"), "{error}");
}

#[tokio::test]
async fn a_resealing_is_asked_about_and_shows_its_progress_in_a_terminal() {
    let backend = Backend::sqlite().await;
    backend.completed("a").await;
    let reseal = |answer: &str| {
        let program = backend.program(&["reseal"]).with("IDEMPOTENCY_KEYRING", &keyring_line(1));
        program.in_a_terminal().with_input(answer).run()
    };
    let refused = reseal("n\n");
    assert_eq!(refused.code, 1, "{refused:?}");
    for shown in ["1 record.", "Seal them with the key 1?", "nothing was changed"] {
        assert!(refused.out.contains(shown), "{refused:?}");
    }
    let done = reseal("y\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("records read") && done.out.contains("1 record sealed"), "{done:?}");
}

#[tokio::test]
async fn no_key_is_ever_written() {
    let backend = Backend::sqlite().await;
    let digits = "ab".repeat(31);
    for keyring in [format!("1:hex:{digits}"), format!("1:{digits}"), format!("x:hex:{digits}")] {
        let program = backend.program(&["reseal", "--yes"]).with("IDEMPOTENCY_KEYRING", &keyring);
        let error = program.fails(2);
        assert!(!error.contains("abab"), "{error}");
    }
    let error = backend.program(&["reseal", "--yes", "--seal-with", "1"]).fails(2);
    assert!(error.contains("--keyring-file"), "{error}");
}
