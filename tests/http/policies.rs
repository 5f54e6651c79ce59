//! Two instances with different versions of a handler share a store, as in a rolling deployment.

use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_actix::{Idempotency, store::RecordState};
use test_support::{Fault, Op, Request, Server, TestApp, wait_for};

use super::handlers::{assert_nothing_leaks, assert_problem};

macro_rules! versions {
    ($($module:ident $(, $key:ident = $value:tt)*;)*) => { $(
        mod $module {
            use actix_web::{HttpResponse, post, web::Data};
            use idempotent_actix::idempotent;
            use test_support::{Probe, Server, TestApp};

            use crate::handlers::User;

            #[idempotent(scope = "user", name = "rolled" $(, $key = $value)*)]
            #[post("/rolled")]
            async fn rolled(user: User, probe: Data<Probe>) -> HttpResponse {
                probe.note(user.0);
                probe.run().await
            }

            pub(super) fn serve(app: &TestApp) -> Server {
                app.serve(|config| {
                    config.service(rolled);
                })
            }
        }
    )* };
}

versions! {
    plain;
    short_ttl, ttl = "1m", lease = "10s";
    hold, abandoned = "hold";
    record_all, record = "all";
    json, fingerprint = "json";
    ignoring, fingerprint = "json", ignore = ["/sent_at"];
    no_fingerprint, fingerprint = "none";
    wait_15s, wait = "15s";
    slow, lease = "1h";
    slower, lease = "2h";
}

/// An hour in seconds.
const HOUR: u64 = 60 * 60;

type Version = fn(&TestApp) -> Server;

/// The two orders in which two versions can receive a key.
fn orders(one: Version, other: Version) -> [[Version; 2]; 2] {
    [[one, other], [other, one]]
}

fn send() -> Request {
    Request::post("/rolled").user("alice").key("k").json("{\"amount\":1}")
}

/// Another handle on the same store, as in another instance.
fn other_instance(app: &TestApp) -> TestApp {
    TestApp { idempotency: Idempotency::builder(app.store.clone()).build(), ..app.clone() }
}

fn serve_both(app: &TestApp, [first, second]: [Version; 2]) -> [Server; 2] {
    [first(app), second(&other_instance(app))]
}

#[test]
fn with_two_ttls_nothing_runs_again_within_the_shorter_one() {
    for (order, versions) in orders(plain::serve, short_ttl::serve).into_iter().enumerate() {
        let app = TestApp::new();
        let [first, second] = serve_both(&app, versions);
        let done = first.send(&send());
        assert_eq!(done.status, 201);
        app.advance(Duration::from_secs(59));
        second.send(&send()).assert_replays(&done);
        first.send(&send()).assert_replays(&done);
        // The TTL is that of the instance that ran the handler.
        app.advance(Duration::from_secs(1));
        assert_eq!(second.send(&send()).is_replay(), order == 0);
    }
}

#[test]
fn with_two_leases_the_one_of_the_running_attempt_applies() {
    // Renewals follow the system's clock: none is due for hours.
    for (versions, lease) in orders(slow::serve, slower::serve).into_iter().zip([HOUR, 2 * HOUR]) {
        let app = TestApp::new();
        let [first, second] = serve_both(&app, versions);
        app.probe.hold();
        let running = first.begin(&send());
        app.probe.await_runs(1);
        app.advance(Duration::from_secs(lease - 1));
        assert_problem(&second.send(&send()), 409, "in_flight", true);
        app.advance(Duration::from_secs(1));
        let successor = second.begin(&send());
        app.probe.await_runs(2);
        assert_eq!(app.store.calls(Op::Renew), 0, "the lease was renewed");
        app.probe.release(2);
        let successor = successor.response();
        assert_eq!(successor.status, 201);
        app.probe.release(1);
        running.response().assert_replays(&successor);
    }
}

#[test]
fn with_two_abandoned_policies_hold_applies() {
    for crashes in [false, true] {
        for versions in orders(plain::serve, hold::serve) {
            let app = TestApp::responding(move |run| {
                assert!(crashes || run > 1, "the handler fails");
                HttpResponse::Created().finish()
            });
            let [first, second] = serve_both(&app, versions);
            if crashes {
                app.probe.hold();
                let running = first.begin(&send());
                app.probe.await_runs(1);
                app.advance(Duration::from_secs(30));
                assert_problem(&second.send(&send()), 409, "outcome_unknown", false);
                app.probe.release_all();
                assert_eq!(
                    running.response().status,
                    201,
                    "the first attempt did not complete late"
                );
            } else {
                assert_eq!(first.send(&send()).status, 500);
                assert_problem(&second.send(&send()), 409, "outcome_unknown", false);
                assert_problem(&first.send(&send()), 409, "outcome_unknown", false);
            }
            assert_eq!(app.probe.runs(), 1);
        }
    }
}

#[test]
fn with_two_record_rules_both_versions_replay_a_recorded_response() {
    for versions in orders(plain::serve, record_all::serve) {
        let app =
            TestApp::responding(|_| HttpResponse::InternalServerError().body("the handler's own"));
        let [first, second] = serve_both(&app, versions);
        let responses =
            [first.send(&send()), second.send(&send()), first.send(&send()), second.send(&send())];
        assert!(responses.iter().all(|response| response.text() == "the handler's own"));
        // Only the version with `record = "all"` records this response, in either order.
        let recorded = responses.iter().position(|response| response.is_replay()).unwrap();
        assert!(responses[recorded..].iter().all(test_support::ClientResponse::is_replay));
        assert_eq!(app.probe.runs(), recorded);
    }
}

#[test]
fn with_two_forms_of_the_fingerprint_neither_gets_the_others_response() {
    let forms: [(Version, Version); 3] = [
        (plain::serve, json::serve),
        (plain::serve, no_fingerprint::serve),
        (json::serve, ignoring::serve),
    ];
    for (one, other) in forms {
        for versions in orders(one, other) {
            for in_flight in [false, true] {
                let app = TestApp::new();
                let [first, second] = serve_both(&app, versions);
                if in_flight {
                    app.probe.hold();
                }
                let running = first.begin(&send());
                app.probe.await_runs(1);
                if !in_flight {
                    app.store.await_calls(Op::Complete, 1);
                }
                let refused = second.send(&send());
                assert_problem(&refused, 422, "key_reused", false);
                assert_nothing_leaks(&refused);
                app.probe.release_all();
                let done = running.response();
                assert_problem(&second.send(&send()), 422, "key_reused", false);
                first.send(&send()).assert_replays(&done);
                assert_eq!(app.probe.runs(), 1);
            }
        }
    }
}

#[test]
fn a_request_waits_for_an_attempt_of_another_handle() {
    let app = TestApp::new();
    let [first, second] = serve_both(&app, [plain::serve, wait_15s::serve]);
    app.probe.hold();
    let running = first.begin(&send());
    app.probe.await_runs(1);
    let waiting = second.begin(&send());
    app.store.await_calls(Op::Claim, 3);
    assert_problem(&second.send(&send().json("{}")), 422, "key_reused", false);
    app.probe.release_all();
    let done = running.response();
    waiting.response().assert_replays(&done);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_response_that_another_handle_has_only_in_memory_is_in_flight() {
    let app = TestApp::new();
    let [first, second] = serve_both(&app, [plain::serve, plain::serve]);
    app.store.fail(Op::Complete, 1000, Fault::Before);
    let done = first.send(&send());
    assert_eq!(done.status, 201);
    first.send(&send()).assert_replays(&done);
    assert_problem(&second.send(&send()), 409, "in_flight", true);
    app.store.heal();
    assert!(wait_for("the end of all work", app.idempotency.drain(Duration::from_secs(5))));
    let found = app.record("alice", "rolled", "k").expect("a record");
    assert!(matches!(found.record.state, RecordState::Completed(_)));
    second.send(&send()).assert_replays(&done);
    assert_eq!(app.probe.runs(), 1);
}
