//! The same request is sent concurrently to several processes, on each store that processes can
//! share.

use std::{sync::Barrier, thread};

use test_support::{ClientResponse, Pending, Request};

use crate::payments::{
    pay, payments_of_alice, post,
    records::Records,
    server::{Files, Payments},
};

macro_rules! on_each_store {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[test] fn $test() { super::$test(super::Records::Sqlite); })*
        }
        mod postgres {
            $(#[test] fn $test() { super::$test(super::Records::postgres()); })*
        }
        #[cfg(feature = "mysql")]
        mod mysql {
            $(#[test] fn $test() { super::$test(super::Records::mysql()); })*
        }
        mod redis {
            $(#[test] fn $test() { super::$test(super::Records::redis()); })*
        }
    };
}

on_each_store! {
    a_hundred_duplicates_in_four_processes_make_one_payment
    a_payment_whose_server_is_killed_runs_once_more_among_the_other_three_and_is_charged_once
    a_refund_that_fails_retryably_is_taken_over_by_exactly_one_waiter
}

fn a_hundred_duplicates_in_four_processes_make_one_payment(records: Records) {
    let files = Files::with(records);
    let servers = Payments::start_all(4, &files);
    let request = pay("order-1", "pm_card_slow_300");
    let responses = responses(send_at_once(&servers, &request, 100));
    let first = only_run(&responses);
    assert_eq!(files.count_at_bank("SELECT count(*) FROM bank_transfers"), 1);
    assert_eq!(files.count_at_bank("SELECT sum(requests) FROM bank_transfers"), 1);
    for server in &servers {
        server.send(&request).assert_replays(first);
        assert_eq!(payments_of_alice(server), 1);
    }
}

fn a_payment_whose_server_is_killed_runs_once_more_among_the_other_three_and_is_charged_once(
    records: Records,
) {
    let files = Files::with(records);
    let mut servers = Payments::start_all(4, &files);
    let request = pay("order-1", "pm_card_slow_1000");
    let killed = servers.pop().unwrap();
    let lost = killed.begin(&request);
    files.await_count_at_bank("SELECT count(*) FROM bank_transfers", 1);
    killed.kill();
    assert!(lost.try_response().is_err(), "the server was killed too late");
    for server in &servers {
        assert_eq!(server.send(&request).problem(), (409, "in_flight".to_owned()));
    }

    files.end_leases();
    let responses = responses(send_at_once(&servers, &request, 30));
    let first = only_run(&responses);
    assert_eq!(first.json()["status"], "succeeded");
    // The second attempt asks the bank, and finds the charge of the first.
    assert_eq!(files.count_at_bank("SELECT count(*) FROM bank_transfers"), 1);
    assert_eq!(files.count_at_bank("SELECT sum(requests) FROM bank_transfers"), 1);
    for server in &servers {
        server.send(&request).assert_replays(first);
        assert_eq!(payments_of_alice(server), 1);
    }
}

/// The first run cannot write to the ledger until all requests are sent, and then fails before
/// money moves.
fn a_refund_that_fails_retryably_is_taken_over_by_exactly_one_waiter(records: Records) {
    let files = Files::with(records);
    let servers = Payments::start_all(4, &files);
    let paid = servers[0].send(&pay("order-1", "pm_card_slow_200"));
    let refund = post(
        "/v1/refunds",
        "refund-1",
        &format!("payment_intent={}", paid.json()["id"].as_str().unwrap()),
    );
    files.prepare(
        "CREATE TABLE runs (number INTEGER PRIMARY KEY);
         CREATE TRIGGER the_first_fails BEFORE INSERT ON refunds BEGIN
             INSERT INTO runs VALUES (NULL);
             -- Unlike ABORT, FAIL keeps the new row of `runs`.
             SELECT raise(FAIL, 'the first run fails') WHERE (SELECT count(*) FROM runs) = 1;
         END",
    );
    let pending = files.while_locked(|| {
        let pending = send_at_once(&servers, &refund, 40);
        servers.iter().for_each(await_earlier_requests);
        pending
    });

    let (failed, others): (Vec<_>, Vec<_>) =
        responses(pending).into_iter().partition(|response| response.status == 500);
    assert_eq!(
        failed.iter().map(ClientResponse::problem).collect::<Vec<_>>(),
        [(500, "ledger_unavailable".to_owned())]
    );
    let first = only_run(&others);
    assert_eq!(files.count("SELECT count(*) FROM runs"), 2);
    assert_eq!(files.count("SELECT sum(attempts) FROM refunds"), 1);
    assert_eq!(
        files.count_at_bank("SELECT sum(requests) FROM bank_transfers WHERE kind = 'refund'"),
        1
    );
    for server in &servers {
        server.send(&refund).assert_replays(first);
    }
}

/// Sends duplicates to the servers in turn.
fn send_at_once(servers: &[Payments], request: &Request, number: usize) -> Vec<Pending> {
    let (bytes, together) = (&request.bytes(), &Barrier::new(number));
    thread::scope(|scope| {
        let send = |server: &Payments| {
            let address = server.address;
            scope.spawn(move || {
                together.wait();
                Pending::send(address, bytes)
            })
        };
        let sending: Vec<_> = servers.iter().cycle().take(number).map(send).collect();
        sending.into_iter().map(|pending| pending.join().unwrap()).collect()
    })
}

fn responses(pending: Vec<Pending>) -> Vec<ClientResponse> {
    pending.into_iter().map(Pending::response).collect()
}

/// Waits until a server has started on its earlier requests. Its workers accept connections in turn
/// and process them in order.
fn await_earlier_requests(server: &Payments) {
    let workers = thread::available_parallelism().unwrap().get();
    for _ in 0..workers {
        assert_eq!(server.send(&Request::new("GET", "/idempotency")).status, 200);
    }
}

/// The only response that comes from a run. Each other one must be its replay, or report that the
/// run is in progress, or that the store did not respond in time, as on a busy machine.
fn only_run(responses: &[ClientResponse]) -> &ClientResponse {
    let ran = |response: &&ClientResponse| response.status == 200 && !response.is_replay();
    assert_eq!(
        responses.iter().filter(ran).count(),
        1,
        "not exactly one response comes from a run"
    );
    let first = responses.iter().find(ran).unwrap();
    for response in responses {
        match response.status {
            200 => assert_eq!(response.body, first.body),
            409 => assert_eq!(response.json()["code"], "in_flight"),
            503 => assert_eq!(response.json()["code"], "store_unavailable"),
            other => panic!("{other}: {}", response.text()),
        }
    }
    first
}
