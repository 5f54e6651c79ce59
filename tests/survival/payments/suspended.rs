//! A payments server that gets no processor time while its store finds out whether the database is
//! alive. The database is, so no request may be refused.

use std::{thread, time::Duration};

use test_support::proxy::Proxy;
use tokio::runtime::Builder;

use crate::payments::{
    pay,
    records::Records,
    server::{Files, Payments, await_that},
};

/// The latency in each direction: a call takes so long that the store probes its server.
const LATENCY: Duration = Duration::from_millis(500);
/// Longer than the time limit of a probe.
const SUSPENSION: Duration = Duration::from_secs(3);

#[test]
fn postgres_is_not_down_because_the_server_was_suspended() {
    suspend_during_probe(Records::postgres());
}

#[cfg(feature = "mysql")]
#[test]
fn mysql_is_not_down_because_the_server_was_suspended() {
    suspend_during_probe(Records::mysql());
}

fn suspend_during_probe(records: Records) {
    let files = Files::with(records);
    let store = files.store();
    let (user, rest) = store.split_once('@').expect("a user");
    let (address, database) = rest.split_once('/').expect("a database");
    let (host, port) = address.split_once(':').expect("a port");
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let proxy = runtime.block_on(Proxy::in_front_of(host, port.parse().unwrap()));
    let store = format!("{user}@127.0.0.1:{}/{database}", proxy.port);

    let bank = Payments::start_bank(&files);
    let server = Payments::start_with(&files, &store, bank.address, &[]);
    assert_eq!(server.send(&pay("order-1", "pm_card_visa")).status, 200);
    proxy.delay(LATENCY);
    let before = proxy.connections();
    let pending = server.begin(&pay("order-2", "pm_card_visa"));
    await_that(|| proxy.connections() > before, "the store probes its server");
    server.pause();
    // What is left of the probe takes no time.
    proxy.delay(Duration::ZERO);
    thread::sleep(SUSPENSION);
    server.resume();
    let response = pending.response();
    let lines = server.kill();
    let down: Vec<_> = lines.iter().filter(|line| line.contains("not respond")).collect();
    assert!(down.is_empty() && response.status == 200, "{response:?} {down:#?}");
}
