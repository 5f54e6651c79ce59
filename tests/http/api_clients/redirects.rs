//! Redirects of guarded requests.

use std::time::Duration;

use idempotent_client::{ErrorKind, IdempotentRequest, Outcome};
use reqwest::{Url, redirect::Policy};
use reqwest_middleware::ClientBuilder;

use super::{
    builder, client, closed, idempotency, received,
    scripted::{
        Line::{self, Close},
        Scripted, respond,
    },
    wait,
};

const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

fn to(url: &Url, status: u16) -> Line {
    respond(status, &[("location", url.as_str())], "")
}

#[test]
fn nothing_is_sent_to_another_server() {
    for status in STATUSES {
        let other = Scripted::new([respond(200, &[], "stolen")]);
        let server = Scripted::new([to(&other.url(), status), to(&other.url(), status)]);
        let request = client(&idempotency()).post(server.url()).idempotent();
        let request = request.header("x-api-key", "secret").bearer_auth("secret").body("order");
        let error = wait(request.send()).unwrap_err();
        // Perhaps it was run before.
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Refused, Outcome::Unknown));
        assert_eq!(error.last_status().unwrap().as_u16(), status);
        assert_eq!((server.requests().len(), other.requests().len()), (2, 0), "{status}");
    }
}

#[test]
fn a_page_to_which_the_request_was_redirected_is_not_its_outcome() {
    for status in [301, 302, 303] {
        for first in [vec![], vec![Close]] {
            let login: Vec<_> =
                (0..2).map(|_| respond(status, &[("location", "/login")], "")).collect();
            let server = Scripted::new(first.into_iter().chain(login));
            let error = wait(client(&idempotency()).post(server.url()).idempotent().send());
            let error = error.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Refused, Outcome::Unknown));
            assert!(server.requests().iter().all(|request| request.starts_with("POST ")));
        }
    }
}

#[test]
fn a_redirect_that_the_server_has_recorded_is_the_outcome() {
    let see = |headers: &[(&str, &str)]| respond(303, headers, "created");
    let server = Scripted::new([
        see(&[("location", "/orders/1")]),
        see(&[("location", "/orders/1"), ("idempotency-replayed", "true")]),
    ]);
    let sent = client(&idempotency()).post(server.url()).idempotent().send();
    assert_eq!(wait(async { received(sent.await).await }), (303, "created".into()));
}

#[test]
fn a_request_is_repeated_at_another_path_of_its_server() {
    for status in [307, 308] {
        let server = Scripted::new([
            respond(status, &[("location", "/v2/orders")], ""),
            respond(201, &[], "done"),
        ]);
        let request = client(&idempotency()).post(server.url()).idempotent().body("order");
        assert_eq!(wait(async { received(request.send().await).await }), (201, "done".into()));
        let (requests, keys) = (server.requests(), server.keys());
        assert!(requests[1].starts_with("POST /v2/orders HTTP/1.1\r\n"), "{requests:?}");
        assert!(requests[1].ends_with("\r\n\r\norder") && keys[0] == keys[1], "{requests:?}");
    }
}

#[test]
fn a_chain_of_redirects_ends() {
    let server = Scripted::new((0..60).map(|_| respond(307, &[("location", "/orders?a=b")], "")));
    let error = wait(client(&idempotency()).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Refused, Outcome::Unknown));
    // Ten redirects, and the same once more.
    assert_eq!((error.attempts(), server.requests().len()), (2, 22));
}

#[test]
fn the_application_can_allow_another_server() {
    let other = Scripted::new([respond(201, &[], "done")]);
    let server = Scripted::new([to(&other.url(), 307)]);
    let allowed = idempotency().allow_redirects_to(other.url().join("/").unwrap());
    let request = client(&allowed).post(server.url()).idempotent().body("order");
    assert_eq!(wait(async { received(request.send().await).await }), (201, "done".into()));
    assert_eq!(server.keys(), other.keys());
    // It still does not become another request.
    let server = Scripted::new([to(&other.url(), 302), to(&other.url(), 302)]);
    let error = wait(client(&allowed).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), other.requests().len()), (ErrorKind::Refused, 1));
}

#[test]
fn a_server_that_redirects_to_one_that_is_down_may_have_run_the_request() {
    let (_socket, closed) = closed();
    let server = Scripted::new((0..100).map(|_| to(&closed, 307)));
    let allowed = idempotency().allow_redirects_to(closed.clone());
    let deadline = Duration::from_millis(300);
    let sent = client(&allowed).post(server.url()).idempotent().deadline(deadline).send();
    let error = wait(sent).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::Unknown));
}

#[test]
fn other_requests_of_the_client_are_redirected_as_ever() {
    let other = Scripted::new([respond(200, &[], "there")]);
    let server = Scripted::new([to(&other.url(), 302)]);
    let response = wait(client(&idempotency()).post(server.url()).body("order").send()).unwrap();
    assert_eq!((response.status().as_u16(), response.url()), (200, &other.url()));
}

#[test]
fn a_client_that_follows_every_redirect_does_not_take_the_page_for_the_outcome() {
    let login = Scripted::new([respond(200, &[], "log in"), respond(200, &[], "log in")]);
    let server = Scripted::new([to(&login.url(), 302), to(&login.url(), 302)]);
    let http = builder().redirect(Policy::limited(10)).build().unwrap();
    let client = ClientBuilder::new(http).with(idempotency().middleware()).build();
    let error = wait(client.post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Refused, Outcome::Unknown));
    assert_eq!(login.requests().len(), 2);
    // What is marked as recorded is.
    let moved = Scripted::new([respond(201, &[("idempotency-replayed", "true")], "one")]);
    let server = Scripted::new([to(&moved.url(), 302)]);
    let sent = client.post(server.url()).idempotent().send();
    assert_eq!(wait(async { received(sent.await).await }), (201, "one".into()));
}
