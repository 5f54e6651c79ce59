//! The store fails before or after it has executed a call.
//!
//! A claim and a completion are sent a second time, with the same owner token, before they count as
//! failed. Other calls are not repeated.

use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_actix::{Idempotency, StoreFailurePolicy, store::RecordState};
use test_support::{Fault, Op, Probe, Request, TestApp, log, wait_for};

use super::handlers::{all, assert_nothing_leaks, assert_problem};

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

fn state(app: &TestApp) -> Option<RecordState> {
    app.record("alice", "POST /payments", "k").map(|found| found.record.state)
}

/// Whether a response is recorded.
fn is_recorded(app: &TestApp) -> bool {
    matches!(state(app), Some(RecordState::Completed(_)))
}

#[test]
fn a_claim_that_fails_once_is_retried_transparently() {
    for fault in [Fault::Before, Fault::After] {
        let app = TestApp::new();
        let server = app.serve(all);
        app.store.fail(Op::Claim, 1, fault);
        let first = server.send(&pay());
        assert_eq!((first.status, first.is_replay()), (201, false), "{fault:?}");
        assert_eq!(app.store.calls(Op::Claim), 2);
        let found = app.record("alice", "POST /payments", "k").expect("a record");
        assert_eq!(found.record.attempt, 1, "{fault:?}: the claim took over from itself");
        server.send(&pay()).assert_replays(&first);
        // The claim was granted, so it is not released, neither at once nor later.
        assert!(wait_for("the end of all work", app.idempotency.drain(Duration::from_secs(5))));
        assert_eq!((app.store.calls(Op::Release), app.store.calls(Op::Abandon)), (0, 0));
        assert_eq!((app.probe.runs(), is_recorded(&app)), (1, true));
    }
}

#[test]
fn a_takeover_that_fails_once_is_retried_transparently() {
    for fault in [Fault::Before, Fault::After] {
        let app = TestApp::responding(|run| {
            assert!(run > 1, "the handler panics");
            HttpResponse::Created().finish()
        });
        let server = app.serve(all);
        assert_problem(&server.send(&pay()), 500, "handler_failed", true);
        app.store.fail(Op::Claim, 1, fault);
        let second = server.send(&pay());
        assert_eq!((second.status, second.is_replay()), (201, false), "{fault:?}");
        let found = app.record("alice", "POST /payments", "k").expect("a record");
        assert_eq!(found.record.attempt, 2, "{fault:?}: one run is one attempt");
        server.send(&pay()).assert_replays(&second);
        assert_eq!(app.probe.runs(), 2);
    }
}

#[test]
fn duplicates_do_not_see_a_claim_that_fails_once() {
    for fault in [Fault::Before, Fault::After] {
        let app = TestApp::new();
        let server = app.serve(all);
        app.probe.hold();
        let first = server.begin(&pay());
        app.probe.await_runs(1);
        app.store.fail(Op::Claim, 1, fault);
        assert_problem(&server.send(&pay()), 409, "in_flight", true);
        app.probe.release_all();
        let first = first.response();
        app.store.fail(Op::Claim, 1, fault);
        server.send(&pay()).assert_replays(&first);
        app.store.fail(Op::Claim, 1, fault);
        assert_problem(&server.send(&pay().body("other")), 422, "key_reused", false);
        assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (1, 7), "{fault:?}");
    }
}

#[test]
fn without_a_claim_nothing_runs() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.store.fail(Op::Claim, 4, Fault::Before);
    for _ in 0..2 {
        let refused = server.send(&pay());
        let seconds = assert_problem(&refused, 503, "store_unavailable", true);
        assert!(seconds.is_some_and(|seconds| (1..=2).contains(&seconds)), "{seconds:?}");
        assert!(
            !refused.text().contains("internal") && !refused.text().contains("faulty"),
            "{}",
            refused.text()
        );
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 4));
    assert_eq!(server.send(&pay()).status, 201, "the store is available again");
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_replay_needs_the_store_too() {
    let app = TestApp::new();
    let server = app.serve(all);
    let first = server.send(&pay());
    app.store.fail(Op::Claim, 2, Fault::Before);
    let refused = server.send(&pay());
    assert_problem(&refused, 503, "store_unavailable", true);
    assert_nothing_leaks(&refused);
    server.send(&pay()).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_claim_whose_acknowledgment_is_lost_is_released() {
    // Whichever of the two calls took effect, the client got the response that nothing was run, so
    // the key must be released.
    for faults in
        [[Fault::After, Fault::After], [Fault::After, Fault::Before], [Fault::Before, Fault::After]]
    {
        let app = TestApp::new();
        let server = app.serve(all);
        for fault in faults {
            app.store.fail(Op::Claim, 1, fault);
        }
        assert_problem(&server.send(&pay()), 503, "store_unavailable", true);
        assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 2), "{faults:?}");
        app.store.await_calls(Op::Release, 1);
        assert_eq!(state(&app), None, "{faults:?}");
        let first = server.send(&pay());
        assert_eq!(first.status, 201);
        server.send(&pay()).assert_replays(&first);
        assert_eq!(app.probe.runs(), 1);
    }
}

#[test]
fn a_claim_that_cannot_be_released_at_once_is_released_later() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.store.fail(Op::Claim, 2, Fault::After);
    app.store.fail(Op::Release, 3, Fault::Before);
    assert_problem(&server.send(&pay()), 503, "store_unavailable", true);
    app.store.await_calls(Op::Release, 4);
    assert_eq!(state(&app), None);
    assert_eq!((server.send(&pay()).status, app.probe.runs()), (201, 1));
}

#[test]
fn an_application_can_choose_to_run_unguarded() {
    let app = TestApp::set(|builder| builder.when_store_fails(StoreFailurePolicy::RunUnguarded));
    let server = app.serve(all);
    app.store.fail(Op::Claim, 4, Fault::Before);
    for run in 1..=2 {
        let response = server.send(&pay());
        assert_eq!((response.status, response.is_replay()), (201, false));
        assert_eq!(response.json()["secret of run"], run);
    }
    let guarded = server.send(&pay());
    server.send(&pay()).assert_replays(&guarded);
    assert_eq!(app.probe.runs(), 3);
}

#[test]
fn an_application_can_turn_the_guard_off_and_is_warned() {
    let app = TestApp::set(|builder| builder.enabled(false));
    let server = app.serve(all);
    for run in 1..=2 {
        let response = server.send(&pay());
        assert_eq!((response.status, response.is_replay()), (201, false));
        assert_eq!(response.header("idempotency-disabled"), Some("true"));
        assert_eq!(response.json()["secret of run"], run);
    }
    let unkeyed = Request::post("/payments").user("alice").body("b");
    assert_eq!((server.send(&unkeyed).status, app.store.calls(Op::Claim)), (201, 0));
    assert_eq!(app.idempotency.specification()["enabled"], false);
    // Handlers of other tests need other stores, so the check fails after the warning.
    drop(wait_for("a check", app.idempotency.check()));
    let warned = log::captured().matches("idempotency is turned off").count();
    assert_eq!(warned, 2, "at the start and at the check");

    let app = TestApp::new();
    let guarded = app.serve(all).send(&pay());
    assert_eq!(guarded.header("idempotency-disabled"), None);
    assert_eq!(app.idempotency.specification()["enabled"], true);
}

#[test]
fn a_claim_that_fails_once_does_not_run_unguarded() {
    for fault in [Fault::Before, Fault::After] {
        let app =
            TestApp::set(|builder| builder.when_store_fails(StoreFailurePolicy::RunUnguarded));
        let server = app.serve(all);
        app.store.fail(Op::Claim, 1, fault);
        let first = server.send(&pay());
        assert_eq!((first.status, is_recorded(&app)), (201, true), "{fault:?}");
        app.store.fail(Op::Claim, 1, fault);
        server.send(&pay()).assert_replays(&first);
        assert_eq!(app.probe.runs(), 1);
    }
}

#[test]
fn an_unguarded_run_that_panics_gets_a_response() {
    let app = TestApp::with(Probe::responding(|_| panic!("a secret of the handler")), |builder| {
        builder.when_store_fails(StoreFailurePolicy::RunUnguarded)
    });
    let server = app.serve(all);
    app.store.fail(Op::Claim, 2, Fault::Before);
    let failed = server.send(&pay());
    assert_problem(&failed, 500, "handler_failed", false);
    assert!(!failed.text().contains("secret"), "{}", failed.text());
    assert_eq!((app.probe.runs(), state(&app)), (1, None), "it did not run unguarded");
}

#[test]
fn a_completion_that_fails_once_is_stored_before_its_response_is_sent() {
    for fault in [Fault::Before, Fault::After] {
        let app = TestApp::new();
        let server = app.serve(all);
        app.store.fail(Op::Complete, 1, fault);
        let first = server.send(&pay());
        assert_eq!((first.status, first.is_replay()), (201, false), "{fault:?}");
        assert_eq!((is_recorded(&app), app.store.calls(Op::Complete)), (true, 2), "{fault:?}");
        server.send(&pay()).assert_replays(&first);
        assert!(wait_for("the end of all work", app.idempotency.drain(Duration::from_secs(5))));
        assert_eq!(
            (app.probe.runs(), app.store.calls(Op::Complete)),
            (1, 2),
            "the completion was also retried in the background"
        );
    }
}

#[test]
fn a_response_that_cannot_be_stored_at_once_is_sent_and_stored_later() {
    for fault in [Fault::Before, Fault::After] {
        let app = TestApp::new();
        let server = app.serve(all);
        app.store.fail(Op::Complete, 3, fault);
        let first = server.send(&pay());
        assert_eq!(
            (first.status, first.is_replay()),
            (201, false),
            "the client did not get its response"
        );
        app.store.await_calls(Op::Complete, 4);
        server.send(&pay()).assert_replays(&first);
        assert_eq!(app.probe.runs(), 1);
    }
}

#[test]
fn a_duplicate_gets_a_response_from_memory_until_it_is_stored() {
    let app = TestApp::new();
    let server = app.serve(all);
    // More failures than retries until the store is healed.
    app.store.fail(Op::Complete, 1000, Fault::Before);
    let first = server.send(&pay());
    assert_eq!((first.status, first.is_replay()), (201, false));
    server.send(&pay()).assert_replays(&first);
    app.store.await_calls(Op::Complete, 4);
    server.send(&pay()).assert_replays(&first);
    assert_problem(&server.send(&pay().body("other")), 422, "key_reused", false);
    assert_eq!((app.probe.runs(), is_recorded(&app)), (1, false));
    app.store.heal();
    assert!(wait_for("the end of all work", app.idempotency.drain(Duration::from_secs(5))));
    assert!(is_recorded(&app));
    let idempotency = Idempotency::builder(app.store.clone()).build();
    let app = TestApp { idempotency, ..app };
    app.serve(all).send(&pay()).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_release_that_fails_is_retried_and_its_client_gets_its_response() {
    for fault in [Fault::Before, Fault::After] {
        let app = TestApp::responding(|run| match run {
            1 => HttpResponse::ServiceUnavailable().body("the handler's own"),
            _ => HttpResponse::Created().finish(),
        });
        let server = app.serve(all);
        app.store.fail(Op::Release, 2, fault);
        let first = server.send(&pay());
        assert_eq!((first.status, first.text()), (503, "the handler's own"));
        app.store.await_calls(Op::Release, 3);
        assert_eq!(server.send(&pay()).status, 201);
        assert_eq!(app.probe.runs(), 2);
    }
}

#[test]
fn a_panic_while_the_store_fails_gets_a_response_and_is_stored_later() {
    let app = TestApp::responding(|run| {
        assert!(run > 1, "the handler panics");
        HttpResponse::Created().finish()
    });
    let server = app.serve(all);
    app.store.fail(Op::Abandon, 2, Fault::Before);
    assert_problem(&server.send(&pay()), 500, "handler_failed", true);
    app.store.await_calls(Op::Abandon, 3);
    assert_eq!((server.send(&pay()).status, app.probe.runs()), (201, 2));
}

#[test]
fn a_recording_that_cannot_be_read_is_neither_replayed_nor_run_again() {
    let app = TestApp::new();
    let server = app.serve(all);
    assert_eq!(server.send(&pay()).status, 201);
    let before = state(&app);
    app.store.damage();
    for _ in 0..2 {
        let refused = server.send(&pay());
        assert_eq!(assert_problem(&refused, 500, "record_unreadable", false), None);
        assert_nothing_leaks(&refused);
    }
    assert_eq!((app.probe.runs(), state(&app)), (1, before));
    assert_problem(&server.send(&pay().body("other")), 422, "key_reused", false);
}

#[test]
fn a_waiting_request_does_not_run_unguarded() {
    // The first run is known to be in progress, so a failed claim of a waiting request changes
    // nothing.
    for handler in ["/wait_15s", "/wait_150ms"] {
        for fault in [Fault::Before, Fault::After] {
            let app =
                TestApp::set(|builder| builder.when_store_fails(StoreFailurePolicy::RunUnguarded));
            let server = app.serve(all);
            let request = Request::post(handler).user("alice").key("k").body("b");
            app.probe.hold();
            let first = server.begin(&request);
            app.probe.await_runs(1);
            let waiting = server.begin(&request);
            app.store.await_calls(Op::Claim, 3);
            app.store.fail(Op::Claim, 4, fault);
            if handler == "/wait_15s" {
                // All failures occurred while the first run was in progress, and nothing else ran.
                app.store.await_calls(Op::Claim, 7);
                assert_eq!(app.probe.runs(), 1, "{fault:?}");
                app.probe.release_all();
                let first = first.response();
                assert_eq!(first.status, 201);
                waiting.response().assert_replays(&first);
            } else {
                assert_problem(&waiting.response(), 409, "in_flight", true);
                app.probe.release_all();
                assert_eq!(first.response().status, 201);
            }
            assert_eq!(app.probe.runs(), 1, "{handler} {fault:?}");
        }
    }
}
