//! Permanent failures of the store are not reported as transient ones.

use idempotent_actix::StoreFailurePolicy;
use test_support::{ClientResponse, Fault, Op, Probe, Request, World, log};

use super::handlers::{all, assert_nothing_leaks, assert_problem};

fn of(user: &str) -> Request {
    Request::post("/payments").user(user).key("k").body("b")
}

fn pay() -> Request {
    of("alice")
}

/// A response that does not invite the client to retry, and discloses nothing about the store.
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
fn a_store_that_refuses_permanently_is_a_misconfiguration_and_nothing_runs() {
    for choice in [StoreFailurePolicy::Refuse, StoreFailurePolicy::RunUnguarded] {
        let world = World::set(|builder| builder.when_store_fails(choice));
        let server = world.serve(all);
        world.store.fail(Op::Claim, 2, Fault::Permanent);
        for _ in 0..2 {
            assert_final(&server.send(&pay()), "misconfigured");
        }
        assert_eq!(
            (world.probe.runs(), world.store.calls(Op::Claim)),
            (0, 2),
            "it is not sent twice"
        );
        assert_eq!(server.send(&pay()).status, 201, "the cause is mended");
    }
}

#[test]
fn a_record_that_the_store_cannot_read_is_neither_run_nor_replayed() {
    for choice in [StoreFailurePolicy::Refuse, StoreFailurePolicy::RunUnguarded] {
        let world = World::set(|builder| builder.when_store_fails(choice));
        let server = world.serve(all);
        let first = server.send(&pay());
        world.store.fail(Op::Claim, 2, Fault::Unreadable);
        for _ in 0..2 {
            assert_final(&server.send(&pay()), "record_unreadable");
        }
        assert_eq!(world.probe.runs(), 1);
        server.send(&pay()).assert_replays(&first);
    }
}

#[test]
fn a_successors_unreadable_record_is_reported_as_such() {
    let world = World::new();
    let server = world.serve(all);
    world.probe.hold();
    let first = server.begin(&pay());
    world.probe.await_runs(1);
    world.pass(std::time::Duration::from_secs(31));
    let second = server.begin(&pay());
    world.probe.await_runs(2);
    world.store.fail(Op::LookUp, 2, Fault::Unreadable);
    world.probe.release_all();
    let responses = [first.response(), second.response()];
    let fenced = responses
        .iter()
        .find(|response| response.status != 201)
        .expect("one of them has lost its key");
    assert_final(fenced, "record_unreadable");
}

#[test]
fn the_cause_is_in_the_log() {
    log::capture();
    let world = World::new();
    let server = world.serve(all);
    world.store.fail(Op::Claim, 1, Fault::Permanent);
    assert_final(&server.send(&of("logged")), "misconfigured");
    let id = World::id("logged", "POST /payments", "k").to_string();
    let log = log::captured();
    let expected = [&*id, "the faulty store failed to do it", "the internal cause"];
    assert!(log.lines().any(|line| expected.iter().all(|part| line.contains(part))), "{log}");
}

#[test]
fn a_handler_under_hold_does_not_run_again_while_its_abandonment_is_not_stored() {
    let probe = Probe::responding(|_| panic!("the handler fails"));
    let world =
        World::with(probe, |builder| builder.when_store_fails(StoreFailurePolicy::RunUnguarded));
    let server = world.serve(all);
    world.store.fail(Op::Abandon, 1_000, Fault::Before);
    let careful = Request::post("/careful").user("alice").key("k").body("b");
    assert_eq!(server.send(&careful).status, 500);
    assert!(world.store.calls(Op::Abandon) > 0, "it was not abandoned");
    assert_problem(&server.send(&careful), 409, "outcome_unknown", false);
    assert_eq!((world.probe.runs(), world.store.calls(Op::Claim)), (1, 1));
}
