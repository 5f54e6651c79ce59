//! A server that restarts without its data while attempts are in flight.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Digester, EncodedRecording, Policy, RecordState, RequestDigest,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_redis::RedisStore;
use tokio::task::JoinSet;

use super::helpers::key;
use test_support::servers::redis::{IN_MEMORY, Server};

const ATTEMPTS: usize = 32;

fn digest() -> RequestDigest {
    Digester::new(["POST", "/payments"]).finish()
}

fn response(run: usize) -> EncodedRecording {
    let body = RecordedBody::Whole(Bytes::from(format!("run {run}")));
    Recording::new(201, Vec::new(), body).encode()
}

async fn begin_first(runtime: &Runtime, id: idempotent_core::RecordId) -> Attempt {
    let begun = runtime.begin(id, digest(), &Policy::DEFAULT).await.unwrap();
    let attempt = if let Admission::Proceed(attempt) = begun { Some(attempt) } else { None };
    attempt.expect("the claim of a new key is granted")
}

/// The restart loses all records. Fails if one of 32 clients that retry at once gets any response
/// but the first response to its request, or if a record is missing at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_after_a_restart_without_data_get_the_first_response() {
    for ends_before_the_restart in [true, false] {
        let mut server = Server::start(IN_MEMORY);
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let runtime = Runtime::new(store, RuntimeOptions::default());
        let mut attempts = Vec::new();
        for _ in 0..ATTEMPTS {
            attempts.push(begin_first(&runtime, key()).await);
        }
        let ids: Vec<_> = attempts.iter().map(|attempt| *attempt.id()).collect();
        server.kill();
        if ends_before_the_restart {
            let mut endings = JoinSet::new();
            for (number, attempt) in attempts.drain(..).enumerate() {
                endings.spawn(async move { attempt.complete(&response(number)).await });
            }
            assert_eq!(endings.join_all().await, vec![AttemptOutcome::Deferred; ATTEMPTS]);
        }
        server.restart();
        for (number, attempt) in attempts.into_iter().enumerate() {
            // `Deferred` if the store has not reconnected yet.
            let ending = attempt.complete(&response(number)).await;
            assert!(
                matches!(ending, AttemptOutcome::Stored | AttemptOutcome::Deferred),
                "{ending:?}"
            );
        }
        let mut retries = JoinSet::new();
        for (number, id) in ids.iter().copied().enumerate() {
            let runtime = runtime.clone();
            retries.spawn(async move {
                let begun = runtime.begin(id, digest(), &Policy::DEFAULT).await;
                let Ok(Admission::Rejected(Verdict::Rejected(Rejection::Completed(recording)))) =
                    begun
                else {
                    return false;
                };
                recording == response(number)
            });
        }
        assert_eq!(
            retries.join_all().await,
            vec![true; ATTEMPTS],
            "a retry ran, or got another response"
        );
        tokio::time::timeout(Duration::from_secs(30), runtime.drain())
            .await
            .expect("some ends were not stored");
        for id in &ids {
            let found = runtime.look_up(id).await.unwrap().expect("a record");
            assert!(matches!(found.record.state, RecordState::Completed(_)));
        }
    }
}
