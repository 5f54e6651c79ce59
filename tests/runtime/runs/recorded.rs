//! Recorded results that cannot be returned, and those that an operator has recorded.

use idempotent_core::{
    RecordState,
    protocol::{Resolution, ResolveOutcome},
    runtime::recording_of,
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
        let resolution = Resolution::Complete(recording.encode());
        let resolved = runtime.resolve(&id, &seen.owner, &resolution).await.unwrap();
        assert_eq!(resolved, ResolveOutcome::Resolved);
        let replayed = format!("{:?}", replay(&runtime, &JOB).await);
        assert!(replayed.contains(shown), "{replayed}");
    }
}
