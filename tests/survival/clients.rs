//! Clients that are killed at random, with a store of pending operations, in front of servers that
//! are killed too, a network that loses, delays, repeats and truncates messages, and gateways that
//! respond in place of the servers.
//!
//! The client is the shop of `examples/chain`. However often it is started, each order must have
//! one effect.

mod chain;
mod shop;

use std::{path::Path, time::Instant};

use tempfile::TempDir;
use test_support::unreliable::Unreliable;

use self::shop::{Kills, Service, Shop};
use crate::{
    payments::{
        records::Records,
        server::{Files, Payments, count_in},
    },
    results::{self, Table, is_long_run},
};

/// The share of requests to which something happens.
const FAULTS: f64 = 0.3;

/// A server of this project, with its own errors.
#[test]
fn each_order_has_one_effect_at_a_guarded_server() {
    let (directory, started) = (TempDir::new().unwrap(), Instant::now());
    let file = directory.path().join("shipping.db");
    let service = Service::new("shipping", &file, None);
    let mut shop = Shop::new(directory.path(), "orders", service.address());
    let kills = shop.run(&mut [service.clone()]);
    check(&shop, &file);
    report("`examples/chain`", &shop, &kills, &[&service.proxy], started);
}

/// The test above notices a client that has another key for each attempt, and one that forgets
/// what it has begun.
#[test]
fn a_client_without_its_half_of_the_contract_has_double_effects() {
    for breach in [Breach::KeyForEachAttempt, Breach::ForgetsPending] {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("shipping.db");
        let service = Service::new("shipping", &file, None);
        let mut shop = Shop::new(directory.path(), "orders", service.address());
        shop.orders = shop.orders.min(300);
        match breach {
            Breach::KeyForEachAttempt => service.proxy.replace_keys(),
            Breach::ForgetsPending => shop.forgets_pending = true,
        }
        let kills = shop.run(&mut [service]);
        let [rows, orders] = counts(&file);
        println!("{breach:?}: {rows} effects of {orders} orders, {kills:?}");
        assert!(rows > orders, "{breach:?}: {rows} effects of {orders} orders, {kills:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Breach {
    KeyForEachAttempt,
    ForgetsPending,
}

/// A server whose errors are those of Stripe, with which the shop pays.
#[test]
fn each_order_is_charged_once_at_a_server_like_stripes() {
    let (directory, started) = (TempDir::new().unwrap(), Instant::now());
    let files = Files::with(Records::Ledger);
    let bank = Payments::start_bank(&files);
    let (restarted, bank_at) = (files.clone(), bank.address);
    let service = Service::with(move || {
        Payments::start_with(&restarted, &restarted.store(), bank_at, &["--complete-every", "1"])
    });
    let mut shop = Shop::new(directory.path(), "payments", service.address());
    let kills = shop.run(&mut [service.clone()]);
    service.let_late_requests_end();
    let payments = "SELECT count(*) FROM payment_intents WHERE status = 'succeeded'";
    let paid = "SELECT count(DISTINCT description) FROM payment_intents WHERE status = 'succeeded'";
    let charges = "SELECT count(*) FROM bank_transfers";
    let counts = [files.count(payments), files.count(paid), files.count_at_bank(charges)];
    assert_eq!(counts, [i64::from(shop.orders); 3], "payments, orders that are paid, charges");
    report("`examples/payments`", &shop, &kills, &[&service.proxy], started);
}

/// Each order has one row, also after the last late request.
fn check(shop: &Shop, file: &Path) {
    let expected = i64::from(shop.orders);
    assert_eq!(counts(file), [expected; 2], "rows, orders in {}", file.display());
}

/// The number of effects, and of orders that have one.
fn counts(file: &Path) -> [i64; 2] {
    ["SELECT count(*) FROM done", "SELECT count(DISTINCT order_id) FROM done"]
        .map(|query| count_in(file, query))
}

fn report(server: &str, shop: &Shop, kills: &Kills, proxies: &[&Unreliable], started: Instant) {
    let counts: Vec<_> = proxies.iter().map(|proxy| proxy.counts()).collect();
    let requests: u64 = counts.iter().map(|(requests, _)| requests).sum();
    let faults: u64 = counts.iter().flat_map(|(_, faults)| faults.values()).sum();
    let facts = [
        ("operations", shop.orders.to_string()),
        ("requests", requests.to_string()),
        ("lost, late, repeated or truncated", faults.to_string()),
        ("kills of the client", kills.client.to_string()),
        ("of servers", kills.servers.to_string()),
        ("double or missing effects", "0".to_owned()),
        ("time", format!("{} s", started.elapsed().as_secs())),
    ];
    println!("{server}: {facts:?}");
    assert!(kills.client >= 3 && kills.servers >= 3, "{kills:?}");
    assert!(faults >= u64::from(shop.orders / 5), "only {faults} faults");
    if is_long_run() {
        results::write(Table::Clients, &[server.to_owned()], &facts);
    }
}
