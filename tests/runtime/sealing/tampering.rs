//! What somebody can do who can write to the database.

use super::*;

fn changed_in(whole: &Contents, change: impl FnOnce(&mut Contents)) -> Contents {
    let mut changed = whole.clone();
    change(&mut changed);
    changed
}

#[tokio::test]
async fn a_response_with_a_changed_byte_is_neither_replayed_nor_run_again() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    complete(&runtime, "k", SECRET).await;
    let whole = contents(&store, "k").await;
    for at in 0..whole.recording.len() {
        let mut changed = whole.recording.to_vec();
        changed[at] ^= 1;
        put(&store, "k", changed_in(&whole, |whole| whole.recording = changed.into())).await;
        let verdict = verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await;
        assert_eq!(verdict, Verdict::Unreadable, "byte {at}");
    }
    let cut = whole.recording.slice(..whole.recording.len() - 1);
    put(&store, "k", changed_in(&whole, |whole| whole.recording = cut)).await;
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, Verdict::Unreadable);
    put(&store, "k", whole).await;
    assert_eq!(verdict_of(&runtime, "k", "b", &Policy::DEFAULT).await, replay_of(SECRET));
}

#[tokio::test]
async fn the_responses_of_two_records_cannot_be_swapped() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    complete(&runtime, "a", "a").await;
    complete(&runtime, "b", "b").await;
    let (a, b) = (contents(&store, "a").await, contents(&store, "b").await);
    put(&store, "a", b).await;
    put(&store, "b", a).await;
    for key in ["a", "b"] {
        let verdict = verdict_of(&runtime, key, "b", &Policy::DEFAULT).await;
        assert_eq!(verdict, Verdict::Unreadable, "{key}");
    }
}

#[tokio::test]
async fn a_step_is_not_an_input_and_an_input_is_not_a_step() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    abandoned(&store, &runtime, "k").await;
    let whole = contents(&store, "k").await;
    let swap = |whole: &mut Contents| std::mem::swap(&mut whole.steps, &mut whole.input);
    put(&store, "k", changed_in(&whole, swap)).await;
    let resumed = runtime.resume(id("k"), |record| {
        let input = decode_input::<String>(&record.notes.input);
        assert!(matches!(input, Err(NoteError::Sealed)), "{input:?}");
        Some(Policy::DEFAULT)
    });
    let attempt = resumed.await.unwrap().unwrap();
    let (ran, result) = step(attempt.operation(), "charge", "another").await;
    assert!(!ran && matches!(result, Err(NoteError::Sealed)), "{result:?}");
}

#[tokio::test]
async fn a_step_of_another_operation_or_with_a_changed_byte_runs_nothing() {
    let store = FaultyStore::default();
    let runtime = sealed_runtime(&store, &[1]);
    abandoned(&store, &runtime, "a").await;
    abandoned(&store, &runtime, "b").await;
    let (whole, other) = (contents(&store, "a").await, contents(&store, "b").await);
    let mut steps = vec![other.steps];
    for at in 0..whole.steps.len() {
        let mut changed = whole.steps.to_vec();
        changed[at] ^= 1;
        steps.push(changed.into());
    }
    steps.push(whole.steps.slice(..whole.steps.len() - 1));
    for steps in steps {
        put(&store, "a", changed_in(&whole, |whole| whole.steps = steps)).await;
        let attempt = proceed(&runtime, "a", "b", &Policy::DEFAULT).await;
        let (ran, result) = step(attempt.operation(), "charge", "another").await;
        assert!(!ran && matches!(result, Err(NoteError::Sealed)), "{result:?}");
        attempt.release().await;
    }
}

#[tokio::test]
async fn the_same_key_id_with_another_key_opens_nothing() {
    let store = FaultyStore::default();
    complete(&sealed_runtime(&store, &[1]), "k", SECRET).await;
    let wrong = Keyring::none().with(1, &[9; 32]).unwrap();
    let wrong = Runtime::new(store.clone(), with_keyring(wrong));
    assert_eq!(verdict_of(&wrong, "k", "b", &Policy::DEFAULT).await, Verdict::Unreadable);
    let rejected = Verdict::Rejected(Rejection::IN_FLIGHT);
    assert_ne!(verdict_of(&wrong, "k", "b", &Policy::DEFAULT).await, rejected);
}
