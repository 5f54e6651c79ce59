//! Recorded results that cannot be returned, and those that an operator has recorded.

use idempotent_core::{
    Record, RecordId, RecordState, Runtime,
    job::recording_of,
    protocol::{Actor, Resolution, ResolveOutcome},
};

use super::*;

#[tokio::test]
async fn a_recorded_value_of_another_type_is_not_run_again() {
    let runtime = runtime(&FaultyStore::default());
    assert_done(succeed(&runtime, &JOB, 7).await, 7, false);
    let (scope, key) = (scope(), key("k"));
    let renamed = runtime.run(&JOB, &scope, &key, &1, |_| async {
        panic!("the work ran");
        #[expect(unreachable_code, reason = "it states the type")]
        Ok::<_, Failure>(Vec::<String>::new())
    });
    let error = renamed.await.unwrap_err();
    assert!(matches!(error, RunError::Unreadable { source: Some(_), .. }), "{error:?}");
    assert!(!error.is_transient());
    assert_done(replay(&runtime, &JOB).await, 7, true);
}

#[tokio::test]
async fn a_value_too_large_to_record_is_returned_once_and_not_made_again() {
    let runtime = runtime(&FaultyStore::default());
    let large = async || {
        let (scope, key) = (scope(), key("k"));
        let work = |_| ready(Ok::<_, Failure>("a".repeat(2 << 20)));
        runtime.run(&JOB, &scope, &key, &1, work).await
    };
    assert_eq!(large().await.unwrap().value.len(), 2 << 20);
    assert!(matches!(large().await, Err(RunError::Omitted)));
}

#[tokio::test]
async fn an_operator_completes_a_held_run_with_a_value_or_a_failure() {
    let results = [(Ok(7), "Ok(Done { value: 7, replayed: true })"), (Err("declined"), "declined")];
    for (result, shown) in results {
        let runtime = runtime(&FaultyStore::default());
        let unknown = |_| ready(Err(Failure::Unknown("timed out".to_owned())));
        run(&runtime, &JOB, unknown).await.unwrap_err();
        let id = record_id(&JOB);
        let seen = runtime.look_up(&id).await.unwrap().expect("a record").record;
        assert_eq!(seen.state, RecordState::Held);
        let recording = recording_of(result.as_ref()).unwrap();
        let resolution = Resolution::Complete(recording.into());
        let resolved = resolve(&runtime, &id, &seen, &resolution).await;
        assert_eq!(resolved, ResolveOutcome::Resolved);
        let replayed = format!("{:?}", replay(&runtime, &JOB).await);
        assert!(replayed.contains(shown), "{replayed}");
    }
}

#[tokio::test]
async fn a_response_is_no_result_of_a_run() {
    let runtime = runtime(&FaultyStore::default());
    let unknown = |_| ready(Err(Failure::Unknown("timed out".to_owned())));
    run(&runtime, &JOB, unknown).await.unwrap_err();
    let id = record_id(&JOB);
    let seen = runtime.look_up(&id).await.unwrap().expect("a record").record;
    let resolution = Resolution::Complete(response("7").into());
    let resolved = resolve(&runtime, &id, &seen, &resolution).await;
    assert_eq!(resolved, ResolveOutcome::Resolved);
    let error = replay(&runtime, &JOB).await.unwrap_err();
    assert!(matches!(error, RunError::Unreadable { source: None, .. }), "{error:?}");
}

/// Values of which JSON keeps something else than what was written, or nothing that can be read.
#[tokio::test]
async fn the_first_run_and_the_later_ones_return_the_same_value() {
    let runtime = runtime(&FaultyStore::default());
    let (scope, key) = (scope(), key("k"));
    for replayed in [false, true] {
        let run = runtime.run(&JOB, &scope, &key, &1, |_| ready(Ok::<_, Failure>(Some(()))));
        let done = run.await.unwrap();
        assert_eq!((done.value, done.replayed), (None, replayed));
    }
    let key = Key::from_text("failure").unwrap();
    for replayed in [false, true] {
        let work = |_| ready(Err::<(), _>(Failure::Final(Some(()))));
        let error = runtime.run(&JOB, &scope, &key, &1, work).await.unwrap_err();
        let RunError::Final { error, replayed: again, .. } = error else { panic!("{error:?}") };
        assert_eq!((error, again), (None, replayed));
    }
}

#[tokio::test]
async fn a_value_that_could_not_be_read_again_is_returned_once_and_not_made_again() {
    let runtime = runtime(&FaultyStore::default());
    let (scope, key) = (scope(), key("k"));
    let run = || runtime.run(&JOB, &scope, &key, &1, |_| ready(Ok::<_, Failure>(f64::NAN)));
    assert!(run().await.unwrap().value.is_nan());
    assert!(matches!(run().await, Err(RunError::Omitted)));
}

/// Its serialization panics, as that of a type with a borrowed `RefCell` may.
#[derive(Debug, serde::Deserialize)]
struct Panicking;

impl serde::Serialize for Panicking {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("the value cannot be serialized")
    }
}

#[tokio::test]
async fn a_value_whose_serialization_panics_is_returned_once_and_not_made_again() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let (scope, key) = (scope(), key("k"));
    let runs = AtomicU32::new(0);
    let run = || {
        let runs = &runs;
        runtime.run(&JOB, &scope, &key, &1, move |_| async move {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Failure>(Panicking)
        })
    };
    assert!(run().await.is_ok());
    store.advance(JOB.policy.lease);
    assert!(matches!(run().await, Err(RunError::Omitted)));
    assert_eq!(runs.load(Ordering::Relaxed), 1, "the work ran again");
}

async fn resolve(
    runtime: &Runtime,
    id: &RecordId,
    seen: &Record,
    resolution: &Resolution,
) -> ResolveOutcome {
    let administrator = runtime.administrator();
    administrator.resolve(id, &seen.owner, resolution, &Actor::default()).await.unwrap()
}
