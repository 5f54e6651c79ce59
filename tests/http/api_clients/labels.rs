//! Labels: one key each, and pending until the service itself has responded.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use idempotent_client::{
    ClientIdempotency, Error, ErrorKind, IdempotentRequest, Outcome, SqlitePending,
};
use reqwest::Response;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tempfile::TempDir;

use super::{
    client, http, idempotency,
    pending::{resume, started},
    received,
    scripted::{
        Line::{self, Close, NotRun},
        Scripted, respond,
    },
    stores::{Own, Slow},
    wait,
};

/// A client with a file of pending operations.
async fn shop(directory: &TempDir) -> (ClientIdempotency, ClientWithMiddleware) {
    let idempotency = started(&directory.path().join("pending.db")).await;
    (idempotency.clone(), client(&idempotency))
}

async fn order(client: &ClientWithMiddleware, server: &Scripted) -> Result<Response, Error> {
    client.post(server.url()).idempotent().label("order-17").body("order").send().await
}

fn kind(result: Result<Response, Error>) -> (ErrorKind, Outcome) {
    let error = result.unwrap_err();
    (error.kind(), error.outcome())
}

/// All requests had one key.
fn assert_one_key(server: &Scripted, requests: usize) {
    let keys = server.keys();
    let is_same = keys.iter().all(|key| *key == keys[0] && !key.is_empty());
    assert!(is_same && keys.len() == requests, "{keys:?}");
}

#[test]
fn a_refusal_in_front_of_the_operation_does_not_finish_its_label() {
    for status in [401, 403, 404, 405, 407, 413, 421, 431, 451, 501, 505] {
        let directory = TempDir::new().unwrap();
        let refused = || respond(status, &[], "in front");
        let server = Scripted::new([
            refused(),
            // It is run, and its response is lost.
            Close,
            refused(),
            refused(),
            respond(201, &[("idempotency-replayed", "true")], "one"),
            refused(),
            refused(),
            respond(201, &[("idempotency-replayed", "true")], "one"),
        ]);
        wait(async {
            let (idempotency, client) = shop(&directory).await;
            assert_eq!(received(order(&client, &server).await).await.0, status);
            let second = kind(order(&client, &server).await);
            assert_eq!(second, (ErrorKind::Refused, Outcome::Unknown), "{status}");
            let resumed = resume(idempotency.resume(&client)).await.remove(0);
            assert_eq!(received(resumed.result).await, (201, "one".into()));
            assert_eq!(resume(idempotency.resume(&client)).await.len(), 0);
            // It was done, and a gateway is not asked whether it was.
            let third = kind(order(&client, &server).await);
            assert_eq!(third, (ErrorKind::Refused, Outcome::Unknown), "{status}");
            assert_eq!(received(order(&client, &server).await).await, (201, "one".into()));
        });
        assert_one_key(&server, 8);
    }
}

#[test]
fn a_redirect_does_not_finish_a_label() {
    let directory = TempDir::new().unwrap();
    let to_login = || respond(302, &[("location", "/login")], "");
    let server = Scripted::new([to_login(), to_login(), respond(201, &[], "one")]);
    wait(async {
        let (_, client) = shop(&directory).await;
        let first = kind(order(&client, &server).await);
        assert_eq!(first, (ErrorKind::Refused, Outcome::Unknown));
        assert_eq!(received(order(&client, &server).await).await, (201, "one".into()));
    });
    assert_one_key(&server, 3);
}

#[test]
fn a_captive_portal_does_not_finish_a_label() {
    let directory = TempDir::new().unwrap();
    let portal = Scripted::new([]);
    let to_portal = || respond(302, &[("location", portal.url().as_str())], "");
    let required = respond(511, &[], "<html>log in</html>");
    let server = Scripted::new([required, to_portal(), to_portal(), respond(201, &[], "one")]);
    wait(async {
        let (idempotency, client) = shop(&directory).await;
        let first = kind(order(&client, &server).await);
        assert_eq!(first, (ErrorKind::Refused, Outcome::Unknown));
        let resumed = resume(idempotency.resume(&client)).await.remove(0);
        assert_eq!(received(resumed.result).await, (201, "one".into()));
    });
    assert_eq!(portal.requests().len(), 0);
    assert_one_key(&server, 4);
}

#[test]
fn a_label_that_was_not_done_keeps_its_key_and_is_not_resumed() {
    let directory = TempDir::new().unwrap();
    let refused = || NotRun(503, "overloaded");
    let server = Scripted::new([refused(), refused(), Close, refused(), respond(201, &[], "one")]);
    wait(async {
        let (idempotency, client) = shop(&directory).await;
        for _ in 0..2 {
            let not_done = kind(order(&client, &server).await);
            assert_eq!(not_done, (ErrorKind::Deadline, Outcome::NotDone));
            assert_eq!(resume(idempotency.resume(&client)).await.len(), 0);
        }
        // Its first attempt may have been run.
        let unknown = kind(order(&client, &server).await);
        assert_eq!(unknown, (ErrorKind::Deadline, Outcome::Unknown));
        let resumed = resume(idempotency.resume(&client)).await.remove(0);
        assert_eq!(received(resumed.result).await, (201, "one".into()));
    });
    assert_one_key(&server, 5);
}

#[test]
fn a_label_that_was_not_done_can_get_another_request() {
    let server = Scripted::new([NotRun(503, "overloaded"), respond(201, &[], "two")]);
    let store = Own::default();
    let client = client(&idempotency().pending(store.clone()));
    wait(async {
        let not_done = kind(order(&client, &server).await);
        assert_eq!(not_done, (ErrorKind::Deadline, Outcome::NotDone));
        // Another key is refused, and nothing is left to be resumed.
        let request = client.post(server.url()).idempotent().label("order-17");
        let other = kind(request.key("k-1".parse().unwrap()).send().await);
        assert_eq!(other, (ErrorKind::LabelReused, Outcome::Unknown));
        assert!(!store.has_open());
        let request = client.post(server.url()).idempotent().label("order-17").body("other");
        assert_eq!(received(request.send().await).await, (201, "two".into()));
        assert!(store.is_finished());
    });
    assert_one_key(&server, 2);
}

/// What happens between a response and the end of its call.
struct Meanwhile<F>(F);

#[async_trait::async_trait]
impl<F: Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static> reqwest_middleware::Middleware
    for Meanwhile<F>
{
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http_1::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let response = next.run(request, extensions).await?;
        (self.0)().await;
        Ok(response)
    }
}

/// Two clients with these settings have the same label. The first one's attempt is not run, and
/// meanwhile the second one's is.
async fn both_order(first: ClientIdempotency, second: ClientIdempotency, server: Arc<Scripted>) {
    let (other, at) = (client(&second), server.clone());
    let meanwhile = Meanwhile(move || {
        let (other, at) = (other.clone(), at.clone());
        Box::pin(async move {
            assert_eq!(received(order(&other, &at).await).await, (201, "one".into()));
        }) as BoxFuture<'static, ()>
    });
    let both = ClientBuilder::new(http()).with(first.middleware()).with(meanwhile).build();
    let outcome = kind(order(&both, &server).await);
    assert_eq!(outcome, (ErrorKind::Deadline, Outcome::Unknown), "it was done");
    assert_eq!(received(order(&client(&first), &server).await).await, (201, "one".into()));
}

#[test]
fn two_clients_of_one_store_have_one_key_for_a_label_and_do_not_deny_what_was_done() {
    let script = || {
        let replay = respond(201, &[("idempotency-replayed", "true")], "one");
        Arc::new(Scripted::new([NotRun(503, "overloaded"), respond(201, &[], "one"), replay]))
    };
    let directory = TempDir::new().unwrap();
    let file = |name: &str| directory.path().join(name);
    let open = async |file: &Path| SqlitePending::open(file).await.unwrap();
    wait(async {
        let (store, server) = (open(&file("shared.db")).await, script());
        let shared = || idempotency().pending(store.clone());
        both_order(shared(), shared(), server.clone()).await;
        assert_one_key(&server, 3);
        // As in two processes.
        let server = script();
        let (first, second) = (open(&file("file.db")).await, open(&file("file.db")).await);
        both_order(idempotency().pending(first), idempotency().pending(second), server.clone())
            .await;
        assert_one_key(&server, 3);
        let (store, server) = (Own::default(), script());
        let shared = || idempotency().pending(store.clone());
        both_order(shared(), shared(), server.clone()).await;
        assert_one_key(&server, 3);
    });
}

#[test]
fn what_is_being_resumed_is_not_reported_as_not_done() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pending.db");
    let server = Arc::new(Scripted::new([NotRun(503, "overloaded"), respond(201, &[], "one")]));
    wait(async {
        let other = started(&file).await;
        let meanwhile = Meanwhile(move || {
            let other = other.clone();
            Box::pin(async move {
                let client = client(&other);
                let handled = other.resume(&client).for_each(async |_| Ok::<_, &str>(()));
                assert_eq!(handled.await.unwrap(), 1);
            }) as BoxFuture<'static, ()>
        });
        let first = started(&file).await;
        let client = ClientBuilder::new(http()).with(first.middleware()).with(meanwhile).build();
        let sent = client.post(server.url()).idempotent().send().await;
        assert_eq!(kind(sent), (ErrorKind::Deadline, Outcome::Unknown));
    });
    assert_one_key(&server, 2);
}

#[test]
fn the_deadline_covers_the_store() {
    let deadline = Duration::from_millis(300);
    let hanging = |calls: &'static [&'static str], script: Vec<Line>| {
        let store = Own::default();
        let slow = Slow(store.clone(), calls, Duration::from_secs(60 * 60));
        let idempotency = idempotency().pending(slow).deadline(deadline);
        (client(&idempotency), store, Scripted::new(script))
    };
    let took = |started: Instant| assert!(started.elapsed() < Duration::from_secs(5));
    let calls = async {
        // Several calls do not wait for each other.
        let (client, _, server) = hanging(&["begin"], vec![]);
        let started = Instant::now();
        let calls = (0..20).map(|_| client.post(server.url()).idempotent().send());
        for result in futures_util::future::join_all(calls).await {
            // It may have been stored, and then it is resumed.
            assert_eq!(kind(result), (ErrorKind::Deadline, Outcome::Unknown));
        }
        took(started);
        assert_eq!(server.requests().len(), 0);

        let (client, store, server) = hanging(&["finish"], vec![respond(201, &[], "one")]);
        let started = Instant::now();
        assert_eq!(received(order(&client, &server).await).await, (201, "one".into()));
        took(started);
        assert!(store.has_open(), "it is resumed");

        let (client, store, server) = hanging(&["retract"], vec![NotRun(503, "overloaded")]);
        let started = Instant::now();
        let refused = kind(order(&client, &server).await);
        assert_eq!(refused, (ErrorKind::Deadline, Outcome::Unknown));
        took(started);
        assert!(store.has_open());
    };
    let limit = Duration::from_secs(30);
    wait(async { tokio::time::timeout(limit, calls).await.expect("a call hangs") });
}

#[test]
fn the_time_that_the_store_takes_counts() {
    let slow = Slow(Own::default(), &["begin"], Duration::from_secs(2));
    let client = client(&idempotency().pending(slow).deadline(Duration::from_secs(3)));
    // It closes each connection.
    let server = Scripted::new([]);
    let started = Instant::now();
    let outcome = kind(wait(client.post(server.url()).idempotent().send()));
    assert_eq!(outcome, (ErrorKind::Deadline, Outcome::Unknown));
    assert!(!server.requests().is_empty(), "it was sent after the store had stored it");
    assert!(started.elapsed() < Duration::from_millis(4_500), "{:?}", started.elapsed());
}
