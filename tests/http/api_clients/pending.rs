//! Operations that survive the client.

use std::{path::Path, time::Duration};

use idempotent_client::{
    ClientIdempotency, ErrorKind, IdempotentRequest, Outcome, Resume, Resumed, SqlitePending,
};
use tempfile::TempDir;

use super::{
    client, idempotency, received,
    scripted::{
        Line::{Ignore, NotRun},
        Scripted, respond,
    },
    stores::{Broken, Own, Unretracting},
    wait,
};

/// A process that has just been started.
pub(super) async fn started(file: &Path) -> ClientIdempotency {
    idempotency().pending(SqlitePending::open(file).await.unwrap())
}

/// Drops a future as when its process dies, after the server has got this many requests.
async fn die_after(requests: usize, server: &Scripted, future: impl Future) {
    let reached = async {
        while server.requests().len() < requests {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The response arrives, if there is one.
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::select! {
        _ = future => panic!("it ended"),
        () = reached => {}
    }
}

/// Resumes what is pending, and returns the results.
pub(super) async fn resume(resume: Resume<'_>) -> Vec<Resumed> {
    let mut results = Vec::new();
    let handle = async |resumed| {
        results.push(resumed);
        Ok::<_, &str>(())
    };
    let number = resume.for_each(handle).await.unwrap();
    assert_eq!(number, results.len());
    results
}

#[test]
fn an_operation_is_resumed_with_its_key_and_without_credentials() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pending.db");
    let server = Scripted::new([Ignore, respond(201, &[("x", "y")], "done")]);
    wait(async {
        let client = client(&started(&file).await);
        let request = client.post(server.url()).idempotent().bearer_auth("secret").json(&17);
        let sent = request.label("order-17").header("x-tenant", "t").send();
        // The process dies before the response.
        die_after(1, &server, sent).await;
    });
    wait(async {
        let idempotency = started(&file).await;
        let client = client(&idempotency);
        // Without its credentials it could be run for another principal.
        let refused = resume(idempotency.resume(&client)).await.remove(0).result.unwrap_err();
        assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Credentials, Outcome::Unknown));
        let with_credentials = || {
            idempotency.resume(&client).credentials(|operation, headers| {
                assert_eq!(operation.label.as_deref(), Some("order-17"));
                headers.insert("authorization", "Bearer new".parse().unwrap());
            })
        };
        let resumed = resume(with_credentials()).await.remove(0);
        assert_eq!(received(resumed.result).await, (201, "done".into()));
        assert_eq!(resume(with_credentials()).await.len(), 0);
    });
    let keys = server.keys();
    assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{keys:?}");
    assert_eq!(server.header("authorization"), ["Bearer secret", "Bearer new"]);
    assert_eq!(server.header("x-tenant"), ["t", "t"]);
    let bodies = server.requests().iter().all(|request| request.ends_with("\r\n\r\n17"));
    assert!(bodies, "{:#?}", server.requests());
    let stored = std::fs::read(&file).unwrap();
    let wal = std::fs::read(directory.path().join("pending.db-wal")).unwrap_or_default();
    let contains = |bytes: &[u8]| bytes.windows(6).any(|six| six == b"secret");
    assert!(!contains(&stored) && !contains(&wal), "the credentials are in the file");
}

#[test]
fn a_label_has_one_key_also_after_the_response() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pending.db");
    let replayed = ("idempotency-replayed", "true");
    let server = Scripted::new([respond(201, &[], "one"), respond(201, &[replayed], "one")]);
    for _ in 0..2 {
        wait(async {
            let client = client(&started(&file).await);
            let request = client.post(server.url()).idempotent().label("order-17").json(&17);
            assert_eq!(received(request.send().await).await, (201, "one".into()));
            // Another request is another operation.
            let other = client.post(server.url()).idempotent().label("order-17").json(&18);
            let error = other.send().await.unwrap_err();
            // The other one may have been done.
            assert_eq!(error.kind(), ErrorKind::LabelReused);
            assert_eq!(error.outcome(), Outcome::Unknown);
        });
    }
    let keys = server.keys();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[test]
fn an_operation_without_a_label_is_forgotten_with_its_outcome() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pending.db");
    let late = || respond(503, &[("retry-after", "60")], "");
    let server = Scripted::new([respond(422, &[], ""), late(), late()]);
    wait(async {
        let idempotency = started(&file).await.deadline(Duration::from_secs(1));
        let client = client(&idempotency);
        let send = || client.post(server.url()).idempotent().body("order").send();
        assert_eq!(send().await.unwrap().status().as_u16(), 422);
        assert_eq!(resume(idempotency.resume(&client)).await.len(), 0);
        // What the client has given up stays, because it may have been done.
        let given_up = send().await.unwrap_err();
        assert_eq!((given_up.kind(), given_up.outcome()), (ErrorKind::Deadline, Outcome::Unknown));
        let error = resume(idempotency.resume(&client)).await.remove(0).result.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Deadline, given_up.key()));
        idempotency.forget(given_up.key().unwrap()).await.unwrap();
        assert_eq!(resume(idempotency.resume(&client)).await.len(), 0);
    });
}

#[test]
fn resuming_can_be_a_task() {
    let directory = TempDir::new().unwrap();
    let server = Scripted::new([respond(402, &[], "one")]);
    wait(async {
        let idempotency = started(&directory.path().join("pending.db")).await;
        let client = client(&idempotency);
        let sent = client.post(server.url()).idempotent().label("order-17").send();
        assert_eq!(received(sent.await).await.0, 402);
        let task = tokio::spawn(async move {
            idempotency.resume(&client).for_each(async |_| Ok::<_, &str>(())).await
        });
        assert_eq!(task.await.unwrap().unwrap(), 0);
    });
}

#[test]
fn a_resumed_operation_may_have_been_run_whatever_responds_now() {
    let directory = TempDir::new().unwrap();
    let refused = || respond(401, &[], "in front");
    let replay = respond(201, &[("idempotency-replayed", "true")], "one");
    let script = [Ignore, refused(), refused(), NotRun(503, "overloaded"), replay];
    let server = Scripted::new(script);
    wait(async {
        let file = directory.path().join("pending.db");
        let client_of_first = client(&started(&file).await);
        die_after(1, &server, client_of_first.post(server.url()).idempotent().send()).await;
        let idempotency = started(&file).await;
        let client = client(&idempotency);
        for kind in [ErrorKind::Refused, ErrorKind::Deadline] {
            let resumed = resume(idempotency.resume(&client)).await.remove(0);
            let error = resumed.result.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (kind, Outcome::Unknown));
        }
        let resumed = resume(idempotency.resume(&client)).await.remove(0);
        assert_eq!(received(resumed.result).await, (201, "one".into()));
    });
}

#[test]
fn an_operation_that_is_not_retracted_may_be_done() {
    let server = Scripted::new([NotRun(503, "overloaded")]);
    let client = client(&idempotency().pending(Unretracting(Own::default())));
    let error =
        wait(client.post(server.url()).idempotent().deadline(Duration::from_secs(5)).send());
    assert_eq!(error.unwrap_err().outcome(), Outcome::Unknown);
}

#[test]
fn an_operation_that_was_not_done_is_not_done_later() {
    let directory = TempDir::new().unwrap();
    let server = Scripted::new([NotRun(503, "overloaded")]);
    wait(async {
        let idempotency = started(&directory.path().join("pending.db")).await;
        let client = client(&idempotency);
        let error = client.post(server.url()).idempotent().send().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::NotDone);
        assert_eq!(resume(idempotency.resume(&client)).await.len(), 0);
    });
}

#[test]
fn a_result_that_was_not_handled_is_handled_by_the_next_process() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pending.db");
    let one = || respond(201, &[], "one");
    let server = Scripted::new([Ignore, one(), one(), one()]);
    wait(async {
        let client = client(&started(&file).await);
        die_after(1, &server, client.post(server.url()).idempotent().send()).await;
    });
    wait(async {
        let idempotency = started(&file).await;
        let client = client(&idempotency);
        // The process dies while it handles the response.
        let dies = async |_| std::future::pending::<Result<(), &str>>().await;
        die_after(2, &server, idempotency.resume(&client).for_each(dies)).await;
        // Or it fails.
        let handled = idempotency.resume(&client).for_each(async |_| Err("the disk is full"));
        assert_eq!(handled.await.unwrap(), 1);
    });
    wait(async {
        let idempotency = started(&file).await;
        let client = client(&idempotency);
        let resumed = resume(idempotency.resume(&client)).await.remove(0);
        assert_eq!(received(resumed.result).await, (201, "one".into()));
    });
    let keys = server.keys();
    assert!(keys.len() == 4 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn a_label_is_refused_after_its_key_has_expired() {
    let directory = TempDir::new().unwrap();
    let server = Scripted::new([respond(201, &[], "")]);
    wait(async {
        let store = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
        let idempotency = idempotency()
            .pending(store)
            .ttl(Duration::from_secs(12))
            .attempt_timeout(Duration::from_secs(10));
        let client = client(&idempotency);
        let send = || client.post(server.url()).idempotent().label("order-17").send();
        assert_eq!(send().await.unwrap().status().as_u16(), 201);
        tokio::time::sleep(Duration::from_millis(2100)).await;
        let error = send().await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Expired, Outcome::Unknown));
    });
}

#[test]
fn an_application_can_keep_pending_operations_itself() {
    let store = Own::default();
    let server = Scripted::new([Ignore, respond(201, &[], "one"), respond(201, &[], "one")]);
    let idempotency = idempotency().pending(store.clone());
    wait(async {
        let client = client(&idempotency);
        let send = || client.post(server.url()).idempotent().label("order-17").send();
        die_after(1, &server, send()).await;
        let resumed = resume(idempotency.resume(&client)).await.remove(0);
        assert_eq!(received(resumed.result).await, (201, "one".into()));
        assert_eq!(resume(idempotency.resume(&client)).await.len(), 0);
        assert_eq!(received(send().await).await, (201, "one".into()));
    });
    let keys = server.keys();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert!(store.is_finished());
}

#[test]
fn nothing_is_sent_that_cannot_be_stored() {
    let server = Scripted::new([]);
    let idempotency = idempotency().pending(Broken);
    let client = client(&idempotency);
    let error = wait(client.post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Store, Outcome::NotDone));
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "the disk is full");
    let resumed = wait(idempotency.resume(&client).for_each(async |_| Ok::<_, &str>(())));
    assert_eq!(resumed.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(server.requests().len(), 0);
}
