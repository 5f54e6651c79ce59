//! Recordings, steps and inputs that are sealed in the store.

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Keyring, Policy, Runtime, ShortText, Store,
    job::{Job, RunError},
    protocol::{Actor, AuditedState, Contents, Rejection, Replacement, Resolution, ResolveOutcome},
    runtime::{AttemptOutcome, NoteError, Run, RuntimeOptions, Verdict, decode_input},
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

mod resealing;
mod tampering;
mod transactions;

const SECRET: &str = "4242 4242 4242 4242";

/// A keyring whose first key seals. The key with the id `n` consists of the bytes `n`.
fn keyring(ids: &[u8]) -> Keyring {
    ids.iter().fold(Keyring::none(), |keyring, id| keyring.with((*id).into(), &[*id; 32]).unwrap())
}

fn with_keyring(keyring: Keyring) -> RuntimeOptions {
    options(|options| options.keyring = keyring)
}

fn sealed_runtime(store: &FaultyStore, ids: &[u8]) -> Runtime {
    Runtime::new(store.clone(), with_keyring(keyring(ids)))
}

/// What the store has of a record.
async fn contents(store: &FaultyStore, key: &str) -> Contents {
    Contents::of(&store.inner().look_up(&id(key)).await.unwrap().expect("a record").record)
}

/// Replaces what the store has of a record, as somebody who can write to the database.
async fn put(store: &FaultyStore, key: &str, becomes: Contents) {
    let record = store.inner().look_up(&id(key)).await.unwrap().expect("a record").record;
    let replacement = Replacement::new(record.owner, Contents::of(&record), becomes);
    let administration = store.inner().administration().unwrap();
    assert!(administration.replace(&id(key), &replacement).await.unwrap());
}

fn contains(bytes: &Bytes, text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn complete(runtime: &Runtime, key: &str, body: &'static str) {
    let attempt = proceed(runtime, key, "b", &Policy::DEFAULT).await;
    assert_eq!(attempt.complete(&response(body)).await, AttemptOutcome::Stored);
}

/// Runs a step with this result; returns whether it ran, and its outcome.
async fn step(operation: &Run, name: &str, result: &str) -> (bool, Result<String, NoteError>) {
    let mut ran = false;
    let outcome = operation
        .step(name)
        .run(|_| async {
            ran = true;
            Ok::<_, NoteError>(result.to_owned())
        })
        .await;
    (ran, outcome)
}

/// An attempt that has noted everything that it can, and whose process has died.
async fn abandoned(store: &FaultyStore, runtime: &Runtime, key: &str) {
    let attempt = proceed(runtime, key, "b", &Policy::DEFAULT).await;
    let operation = attempt.operation();
    operation.set_input(SECRET).unwrap();
    operation.set_reference("refund 17").await.unwrap();
    operation.progress("1 of 2").await.unwrap();
    assert!(step(operation, "charge", SECRET).await.1.is_ok());
    drop(attempt);
    store.advance(Policy::DEFAULT.lease);
}

#[tokio::test]
async fn a_sealed_response_is_replayed_and_not_readable_in_the_store() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    complete(&runtime, "k", SECRET).await;
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of(SECRET));
    let found = runtime.find(id("k"), request("b")).await.unwrap();
    assert_eq!(found, Some(replay_of(SECRET)));
    let kept = contents(&store, "k").await.recording;
    assert!(!contains(&kept, SECRET) && !contains(&kept, "4242"));
    let listed = store.inner().look_up(&id("k")).await.unwrap().unwrap().record;
    assert_eq!(listed.status, Some(201), "operators do not see the status");
}

#[tokio::test]
async fn steps_and_inputs_are_sealed_and_what_operators_search_by_is_not() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    abandoned(&store, &runtime, "k").await;
    let Contents { steps, input, .. } = contents(&store, "k").await;
    for kept in [&steps, &input] {
        assert!(!kept.is_empty() && !contains(kept, SECRET) && !contains(kept, "charge"));
    }
    let notes = store.inner().look_up(&id("k")).await.unwrap().unwrap().record.notes;
    assert_eq!(notes.reference, ShortText::new("refund 17").ok());
    assert_eq!(notes.progress, ShortText::new("1 of 2").ok());
    let resumed = runtime.resume(id("k"), |record| {
        assert_eq!(decode_input::<String>(&record.notes.input).unwrap(), SECRET);
        Some(Policy::DEFAULT)
    });
    let attempt = resumed.await.unwrap().unwrap();
    let (ran, result) = step(attempt.operation(), "charge", "another").await;
    assert_eq!((ran, result.unwrap().as_str()), (false, SECRET));
    let (ran, result) = step(attempt.operation(), "ledger", "17").await;
    assert_eq!((ran, result.unwrap().as_str()), (true, "17"));
}

#[tokio::test]
async fn what_is_from_before_the_keyring_is_read_unless_that_is_refused() {
    let store = FaultyStore::default();
    let (before, after) = (runtime(&store), sealed_runtime(&store, &[1]));
    complete(&before, "done", SECRET).await;
    abandoned(&store, &before, "k").await;
    assert_eq!(verdict_of(&after, "done", "b", &Policy::DEFAULT).await, replay_of(SECRET));
    // The second attempt adds a sealed step to one that is not.
    let attempt = proceed(&after, "k", "b", &Policy::DEFAULT).await;
    assert!(!step(attempt.operation(), "charge", "another").await.0);
    assert!(step(attempt.operation(), "ledger", "17").await.0);
    drop(attempt);
    store.advance(Policy::DEFAULT.lease);
    let attempt = proceed(&after, "k", "b", &Policy::DEFAULT).await;
    assert!(!step(attempt.operation(), "charge", "another").await.0);
    assert!(!step(attempt.operation(), "ledger", "another").await.0);
    drop(attempt);
    store.advance(Policy::DEFAULT.lease);
    let strict = Runtime::new(store.clone(), with_keyring(keyring(&[1]).refusing_unsealed()));
    let verdict = verdict_of(&strict, "done", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, Verdict::Unreadable);
    let attempt = proceed(&strict, "k", "b", &Policy::DEFAULT).await;
    let (ran, result) = step(attempt.operation(), "charge", "another").await;
    assert!(!ran && matches!(result, Err(NoteError::Sealed)), "{result:?}");
}

#[tokio::test]
async fn without_the_keyring_nothing_is_replayed_or_run_again() {
    test_support::log::capture();
    let store = FaultyStore::default();
    let sealed = sealed_runtime(&store, &[1]);
    complete(&sealed, "done", SECRET).await;
    abandoned(&store, &sealed, "k").await;
    for without in [runtime(&store), sealed_runtime(&store, &[2])] {
        let verdict = verdict_of(&without, "done", "b", &Policy::DEFAULT).await;
        assert_eq!(verdict, Verdict::Unreadable);
        let found = without.find(id("done"), request("b")).await.unwrap();
        assert_eq!(found, Some(Verdict::Unreadable));
        let resumed = without.resume(id("k"), |record| {
            let input = decode_input::<String>(&record.notes.input);
            assert!(matches!(input, Err(NoteError::Sealed)), "{input:?}");
            None
        });
        assert!(resumed.await.unwrap().is_none());
        let attempt = proceed(&without, "k", "b", &Policy::DEFAULT).await;
        let (ran, result) = step(attempt.operation(), "charge", "another").await;
        assert!(!ran && matches!(result, Err(NoteError::Sealed)), "{result:?}");
        let (ran, result) = step(attempt.operation(), "ledger", "17").await;
        assert!(!ran && matches!(result, Err(NoteError::Sealed)), "{result:?}");
        attempt.release().await;
    }
    let lines = test_support::log::captured();
    let line = |text: &str| lines.lines().any(|line| line.contains(text));
    assert!(line("is sealed with a key that this program does not have; set the keyring that"));
    assert!(line("the keyring has no key with the id 1, which has sealed it"));
    assert!(!line(SECRET), "a log line has the secret");
}

#[tokio::test]
async fn an_older_key_opens_and_the_first_one_seals() {
    let store = FaultyStore::default();
    complete(&sealed_runtime(&store, &[1]), "old", "a").await;
    let rotated = sealed_runtime(&store, &[2, 1]);
    assert_eq!(verdict_of(&rotated, "old", "b", &Policy::DEFAULT).await, replay_of("a"));
    complete(&rotated, "new", "a").await;
    let later = sealed_runtime(&store, &[2]);
    assert_eq!(verdict_of(&later, "new", "b", &Policy::DEFAULT).await, replay_of("a"));
    assert_eq!(verdict_of(&later, "old", "b", &Policy::DEFAULT).await, Verdict::Unreadable);
    // Before a rotation, every process has to open the new key.
    let before = keyring(&[1]).opening(2, &[2; 32]).unwrap();
    let before = Runtime::new(store.clone(), with_keyring(before));
    assert_eq!(verdict_of(&before, "new", "b", &Policy::DEFAULT).await, replay_of("a"));
}

#[tokio::test]
async fn a_key_that_only_opens_leaves_new_records_as_they_are() {
    let store = FaultyStore::default();
    let opening = Keyring::none().opening(1, &[1; 32]).unwrap();
    let opening = Runtime::new(store.clone(), with_keyring(opening));
    complete(&opening, "k", SECRET).await;
    assert!(contains(&contents(&store, "k").await.recording, SECRET));
    assert_eq!(verdict_of(&runtime(&store), "k", "b", &Policy::DEFAULT).await, replay_of(SECRET));
}

#[tokio::test]
async fn a_response_that_waits_for_the_store_is_replayed_and_then_sealed() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Complete, usize::MAX, Fault::Before);
    assert_eq!(attempt.complete(&response(SECRET)).await, AttemptOutcome::Deferred);
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of(SECRET));
    store.heal();
    in_time(runtime.drain()).await;
    assert!(!contains(&contents(&store, "k").await.recording, SECRET));
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of(SECRET));
}

#[tokio::test]
async fn a_fenced_attempt_gets_the_sealed_response_of_its_successor() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    let fenced = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.advance(Policy::DEFAULT.lease);
    complete(&runtime, "k", SECRET).await;
    let outcome = fenced.complete(&response("the fenced attempt's")).await;
    assert_eq!(outcome, AttemptOutcome::Fenced(replay_of(SECRET)));
}

#[tokio::test]
async fn what_an_operator_records_is_sealed_and_logged_with_its_status() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    let attempt = proceed(&runtime, "k", "b", &HOLD).await;
    attempt.abandon(Abandoned::Hold).await;
    let administrator = runtime.administrator();
    let seen = administrator.look_up(&id("k")).await.unwrap().unwrap().record.owner;
    let (resolution, actor) = (Resolution::Complete(response(SECRET).into()), Actor::new("a", "b"));
    let resolved = administrator.resolve(&id("k"), &seen, &resolution, &actor).await.unwrap();
    assert_eq!(resolved, ResolveOutcome::Resolved);
    assert!(!contains(&contents(&store, "k").await.recording, SECRET));
    assert_eq!(verdict_of(&runtime, "k", "b", &HOLD).await, replay_of(SECRET));
    let log = administrator.audit(None, 1).await.unwrap().entries;
    assert_eq!(log[0].entry.after, AuditedState::Completed(Some(201)));
    let shown = Contents::of(&administrator.look_up(&id("k")).await.unwrap().unwrap().record);
    assert_eq!(&shown.recording, response(SECRET).as_bytes());
}

#[tokio::test]
async fn the_result_of_a_job_is_sealed() {
    const JOB: Job = Job::new("refund");
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    let run = async |runtime: &Runtime| {
        let (scope, key) = (idempotent_core::ScopeId::new("alice"), "k".parse().unwrap());
        let work = async |_: Run| Ok::<_, idempotent_core::job::Failure<()>>(SECRET.to_owned());
        runtime.run(&JOB, &scope, &key, &7, work).await
    };
    assert!(!run(&runtime).await.unwrap().replayed);
    let done = run(&runtime).await.unwrap();
    assert_eq!((done.value.as_str(), done.replayed), (SECRET, true));
    let without = run(&super::support::runtime(&store)).await.unwrap_err();
    assert!(matches!(without, RunError::Unreadable { .. }), "{without:?}");
}
