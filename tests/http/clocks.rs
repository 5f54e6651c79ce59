//! The store's clock is set while a request is in flight.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::idempotent;
use test_support::{Op, Probe, Request, TestApp};

use super::handlers::{User, all, assert_problem};

/// Less than the ttl.
const STEP: Duration = Duration::from_secs(5 * 3600);

#[idempotent(scope = "user", lease = "600ms")]
#[post("/short_lease")]
async fn short_lease(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(short_lease);
}

fn request(path: &str) -> Request {
    Request::post(path).user("alice").key("k").body("b")
}

/// Fails if a duplicate runs although the owner renews its lease, or if its `Retry-After` is of
/// hours.
#[test]
fn a_request_in_flight_keeps_its_key_when_the_clock_is_set() {
    for forward in [true, false] {
        let app = TestApp::new();
        let server = app.serve(services);
        app.probe.hold();
        let first = server.begin(&request("/short_lease"));
        app.probe.await_runs(1);
        if forward {
            app.clock.advance(STEP);
        } else {
            app.clock.set_back(STEP);
        }
        for _ in 0..3 {
            // The first of these renewals may have begun before the clock was set.
            app.store.await_calls(Op::Renew, app.store.calls(Op::Renew) + 2);
            let duplicate = server.send(&request("/short_lease"));
            let seconds = assert_problem(&duplicate, 409, "in_flight", true);
            assert!(seconds.is_some_and(|seconds| seconds <= 2), "{forward}: {seconds:?}");
        }
        app.probe.release_all();
        let first = first.response();
        assert_eq!(first.status, 201, "{forward}");
        server.send(&request("/short_lease")).assert_replays(&first);
        assert_eq!(app.probe.runs(), 1);
    }
}

/// No renewal runs meanwhile: the duplicates themselves limit the lease to its length.
#[test]
fn after_the_clock_was_set_back_duplicates_are_told_to_wait_for_a_lease_at_most() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&request("/payments"));
    app.probe.await_runs(1);
    app.clock.set_back(STEP);
    for _ in 0..2 {
        let seconds = assert_problem(&server.send(&request("/payments")), 409, "in_flight", true);
        assert!(seconds.is_some_and(|seconds| seconds <= 40), "{seconds:?}");
    }
    assert_eq!(app.store.calls(Op::Renew), 0, "the lease was renewed");
    let found = app.record("alice", "POST /payments", "k").unwrap();
    let left = found.record.lease_until.duration_since(found.at);
    assert!(left <= Duration::from_secs(30), "{found:?}");
    app.probe.release_all();
    let first = first.response();
    server.send(&request("/payments")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}
