//! Where a lookup is found.

use super::*;

#[test]
fn keys_of_dots_have_a_location() {
    for (key, segment) in [(".", "%22%2E%22"), ("..", "%22%2E%2E%22"), ("...", "%2E%2E%2E")] {
        let app = TestApp::new();
        let server = app.serve(services);
        app.probe.hold();
        let request = Request::post("/v1/exports").user("alice").key(key);
        let first = server.begin(&request);
        app.probe.await_runs(1);
        let accepted = server.send(&request);
        let location = accepted.header("location").unwrap().to_owned();
        let expected = format!("/idempotency/keys/{segment}?operation=POST%20%2Fv1%2Fexports");
        assert_eq!((accepted.status, &location), (202, &expected));
        assert_eq!(look_up(&server, &location, "alice").json()["state"], "in_flight");
        app.probe.release_all();
        assert_eq!(first.response().status, 201);
    }
}

#[test]
fn the_location_of_a_lookup_needs_no_host() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.probe.hold();
    let request = Request::post("/v1/exports").user("alice").key("k").bytes();
    let request = String::from_utf8(request).unwrap();
    let first = server.begin_raw(request.replace("Host: localhost", "Host:").as_bytes());
    app.probe.await_runs(1);
    for host in ["Host:", "Host: [", "Host: a b"] {
        let duplicate = server.begin_raw(request.replace("Host: localhost", host).as_bytes());
        let accepted = duplicate.response();
        assert_eq!((accepted.status, accepted.header("location")), (202, Some(LOCATION)), "{host}");
    }
    app.probe.release_all();
    assert_eq!(first.response().status, 201);
}

const LOCATION: &str = "/idempotency/keys/k?operation=POST%20%2Fv1%2Fexports";
