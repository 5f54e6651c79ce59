//! Permanent failures of the store are not reported as transient ones.

use idempotent_actix::StoreFailurePolicy;
use test_support::{ClientResponse, Fault, Op, Probe, Request, TestApp, log};

use super::handlers::{all, assert_nothing_leaks, assert_problem};

fn request(user: &str) -> Request {
    Request::post("/payments").user(user).key("k").body("b")
}

fn pay() -> Request {
    request("alice")
}

/// Asserts that a response does not invite the client to retry, and discloses nothing about the
/// store.
#[track_caller]
fn assert_final(response: &ClientResponse, code: &str) {
    assert_eq!(assert_problem(response, 500, code, false), None);
    assert_nothing_leaks(response);
    assert!(
        !response.text().contains("internal") && !response.text().contains("faulty"),
        "{}",
        response.text()
    );
}

#[test]
fn a_permanent_store_error_is_a_misconfiguration_and_nothing_runs() {
    for choice in [StoreFailurePolicy::Refuse, StoreFailurePolicy::RunUnguarded] {
        let app = TestApp::set(|builder| builder.when_store_fails(choice));
        let server = app.serve(all);
        app.store.fail(Op::Claim, 2, Fault::Permanent);
        for _ in 0..2 {
            assert_final(&server.send(&pay()), "misconfigured");
        }
        assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 2), "a claim was repeated");
        assert_eq!(server.send(&pay()).status, 201, "the store works again");
    }
}

#[test]
fn a_record_that_the_store_cannot_read_is_neither_run_nor_replayed() {
    for choice in [StoreFailurePolicy::Refuse, StoreFailurePolicy::RunUnguarded] {
        let app = TestApp::set(|builder| builder.when_store_fails(choice));
        let server = app.serve(all);
        let first = server.send(&pay());
        app.store.fail(Op::Claim, 2, Fault::Unreadable);
        for _ in 0..2 {
            assert_final(&server.send(&pay()), "record_unreadable");
        }
        assert_eq!(app.probe.runs(), 1);
        server.send(&pay()).assert_replays(&first);
    }
}

#[test]
fn a_successors_unreadable_record_is_reported_as_such() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.probe.hold();
    let first = server.begin(&pay());
    app.probe.await_runs(1);
    app.advance(std::time::Duration::from_secs(31));
    let second = server.begin(&pay());
    app.probe.await_runs(2);
    app.store.fail(Op::LookUp, 2, Fault::Unreadable);
    app.probe.release_all();
    let responses = [first.response(), second.response()];
    let fenced =
        responses.iter().find(|response| response.status != 201).expect("a fenced attempt");
    assert_final(fenced, "record_unreadable");
}

#[test]
fn the_cause_is_in_the_log() {
    log::capture();
    let app = TestApp::new();
    let server = app.serve(all);
    app.store.fail(Op::Claim, 1, Fault::Permanent);
    assert_final(&server.send(&request("logged")), "misconfigured");
    let id = TestApp::id("logged", "POST /payments", "k").short().to_string();
    let log = log::captured();
    let expected = [&*id, "faulty: failed to execute the call", "the internal cause"];
    assert!(log.lines().any(|line| expected.iter().all(|part| line.contains(part))), "{log}");
}

#[test]
fn with_the_hold_policy_a_handler_does_not_run_again_while_its_abandonment_is_not_stored() {
    let probe = Probe::responding(|_| panic!("the handler fails"));
    let app =
        TestApp::with(probe, |builder| builder.when_store_fails(StoreFailurePolicy::RunUnguarded));
    let server = app.serve(all);
    app.store.fail(Op::Abandon, 1_000, Fault::Before);
    let hold_if_abandoned = Request::post("/hold_if_abandoned").user("alice").key("k").body("b");
    assert_eq!(server.send(&hold_if_abandoned).status, 500);
    assert!(app.store.calls(Op::Abandon) > 0, "the key was not abandoned");
    assert_problem(&server.send(&hold_if_abandoned), 409, "outcome_unknown", false);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (1, 1));
}
