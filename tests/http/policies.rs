//! Two policies for one operation at the same time, as in a rolling deployment: two instances that
//! share a store, each with a different version of the handler.

use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_actix::{Idempotency, store::RecordState};
use test_support::{Fault, Op, Request, Server, World, wait_for};

use super::handlers::{assert_nothing_leaks, assert_problem};

macro_rules! versions {
    ($($module:ident $(, $key:ident = $value:literal)*;)*) => { $(
        mod $module {
            use actix_web::{HttpResponse, post, web::Data};
            use idempotent_actix::idempotent;
            use test_support::{Probe, Server, World};

            use crate::handlers::User;

            #[idempotent(scope = "user", name = "rolled" $(, $key = $value)*)]
            #[post("/rolled")]
            async fn rolled(user: User, probe: Data<Probe>) -> HttpResponse {
                probe.note(user.0);
                probe.run().await
            }

            pub(super) fn serve(world: &World) -> Server {
                world.serve(|config| {
                    config.service(rolled);
                })
            }
        }
    )* };
}

versions! {
    plain;
    brief, ttl = "1m", lease = "10s";
    careful, abandoned = "hold";
    everything, record = "all";
    json, fingerprint = "json";
    unhashed, fingerprint = "none";
    patient, wait = "15s";
    slow, lease = "1h";
    slower, lease = "2h";
}

/// In seconds.
const HOUR: u64 = 60 * 60;

type Version = fn(&World) -> Server;

/// Both orders in which two versions can receive a key.
fn orders(one: Version, other: Version) -> [[Version; 2]; 2] {
    [[one, other], [other, one]]
}

fn send() -> Request {
    Request::post("/rolled").user("alice").key("k").json("{\"amount\":1}")
}

/// The same store in another instance, optionally in the same process.
fn elsewhere(world: &World) -> World {
    World { idempotency: Idempotency::builder(world.store.clone()).build(), ..world.clone() }
}

fn both(world: &World, [first, second]: [Version; 2]) -> [Server; 2] {
    [first(world), second(&elsewhere(world))]
}

#[test]
fn with_two_ttls_nothing_runs_again_within_the_shorter_one() {
    for (order, versions) in orders(plain::serve, brief::serve).into_iter().enumerate() {
        let world = World::new();
        let [first, second] = both(&world, versions);
        let done = first.send(&send());
        assert_eq!(done.status, 201);
        world.pass(Duration::from_secs(59));
        second.send(&send()).assert_replays(&done);
        first.send(&send()).assert_replays(&done);
        // The instance that ran the handler has set the TTL.
        world.pass(Duration::from_secs(1));
        assert_eq!(second.send(&send()).is_replay(), order == 0);
    }
}

#[test]
fn with_two_leases_the_one_of_the_running_attempt_counts() {
    // Renewals follow the machine's clock: none is due for hours.
    for (versions, lease) in orders(slow::serve, slower::serve).into_iter().zip([HOUR, 2 * HOUR]) {
        let world = World::new();
        let [first, second] = both(&world, versions);
        world.probe.hold();
        let running = first.begin(&send());
        world.probe.await_runs(1);
        world.pass(Duration::from_secs(lease - 1));
        assert_problem(&second.send(&send()), 409, "in_flight", true);
        world.pass(Duration::from_secs(1));
        let taken = second.begin(&send());
        world.probe.await_runs(2);
        assert_eq!(world.store.calls(Op::Renew), 0, "a renewal came in between");
        world.probe.release(2);
        let taken = taken.response();
        assert_eq!(taken.status, 201);
        world.probe.release(1);
        running.response().assert_replays(&taken);
    }
}

#[test]
fn with_two_ways_to_abandon_the_more_careful_one_counts() {
    for crashes in [false, true] {
        for versions in orders(plain::serve, careful::serve) {
            let world = World::responding(move |run| {
                assert!(crashes || run > 1, "the handler fails");
                HttpResponse::Created().finish()
            });
            let [first, second] = both(&world, versions);
            if crashes {
                world.probe.hold();
                let running = first.begin(&send());
                world.probe.await_runs(1);
                world.pass(Duration::from_secs(30));
                assert_problem(&second.send(&send()), 409, "outcome_unknown", false);
                world.probe.release_all();
                assert_eq!(running.response().status, 201, "the late first owner completes");
            } else {
                assert_eq!(first.send(&send()).status, 500);
                assert_problem(&second.send(&send()), 409, "outcome_unknown", false);
                assert_problem(&first.send(&send()), 409, "outcome_unknown", false);
            }
            assert_eq!(world.probe.runs(), 1);
        }
    }
}

#[test]
fn with_two_rules_of_what_is_recorded_a_recorded_response_is_replayed_by_both() {
    for versions in orders(plain::serve, everything::serve) {
        let world =
            World::responding(|_| HttpResponse::InternalServerError().body("the handler's own"));
        let [first, second] = both(&world, versions);
        let responses =
            [first.send(&send()), second.send(&send()), first.send(&send()), second.send(&send())];
        assert!(responses.iter().all(|response| response.text() == "the handler's own"));
        // Only the version that records all responses has recorded it, in either order.
        let recorded = responses.iter().position(|response| response.is_replay()).unwrap();
        assert!(responses[recorded..].iter().all(test_support::ClientResponse::is_replay));
        assert_eq!(world.probe.runs(), recorded);
    }
}

#[test]
fn with_two_forms_of_the_fingerprint_neither_gets_the_others_response() {
    for other in [json::serve as Version, unhashed::serve] {
        for versions in orders(plain::serve, other) {
            for in_flight in [false, true] {
                let world = World::new();
                let [first, second] = both(&world, versions);
                if in_flight {
                    world.probe.hold();
                }
                let running = first.begin(&send());
                world.probe.await_runs(1);
                if !in_flight {
                    world.store.await_calls(Op::Complete, 1);
                }
                let refused = second.send(&send());
                assert_problem(&refused, 422, "key_reused", false);
                assert_nothing_leaks(&refused);
                world.probe.release_all();
                let done = running.response();
                assert_problem(&second.send(&send()), 422, "key_reused", false);
                first.send(&send()).assert_replays(&done);
                assert_eq!(world.probe.runs(), 1);
            }
        }
    }
}

#[test]
fn two_handles_on_one_store_are_two_instances() {
    let world = World::new();
    let [first, second] = both(&world, [plain::serve, patient::serve]);
    world.probe.hold();
    let running = first.begin(&send());
    world.probe.await_runs(1);
    let waiting = second.begin(&send());
    world.store.await_calls(Op::Claim, 3);
    assert_problem(&second.send(&send().json("{}")), 422, "key_reused", false);
    world.probe.release_all();
    let done = running.response();
    waiting.response().assert_replays(&done);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn one_handle_waits_for_what_another_has_in_memory() {
    let world = World::new();
    let [first, second] = both(&world, [plain::serve, plain::serve]);
    world.store.fail(Op::Complete, 1000, Fault::Before);
    let done = first.send(&send());
    assert_eq!(done.status, 201);
    first.send(&send()).assert_replays(&done);
    assert_problem(&second.send(&send()), 409, "in_flight", true);
    world.store.heal();
    assert!(wait_for("the end of all work", world.idempotency.drain(Duration::from_secs(5))));
    let found = world.record("alice", "rolled", "k").expect("it is kept");
    assert!(matches!(found.record.state, RecordState::Completed(_)));
    second.send(&send()).assert_replays(&done);
    assert_eq!(world.probe.runs(), 1);
}
