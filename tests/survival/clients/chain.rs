//! Three services in a row, each killed at random.

use std::time::Instant;

use tempfile::TempDir;

use super::{
    check, report,
    shop::{Service, Shop},
};

#[test]
fn each_order_is_charged_shipped_and_confirmed_once() {
    let (directory, started) = (TempDir::new().unwrap(), Instant::now());
    let file = |name: &str| directory.path().join(name).with_extension("db");
    let shipping = Service::new("shipping", &file("shipping"), None);
    let payments = Service::new("payments", &file("payments"), Some(shipping.address()));
    let orders = Service::new("orders", &file("orders"), Some(payments.address()));
    let mut shop = Shop::new(directory.path(), "orders", orders.address());
    let kills = shop.run(&mut [shipping.clone(), payments.clone(), orders.clone()]);
    for name in ["shipping", "payments", "orders"] {
        check(&shop, &file(name));
    }
    let proxies = [&shipping.proxy, &payments.proxy, &orders.proxy];
    report("the three services of `examples/chain`", &shop, &kills, &proxies, started);
}
