//! Applications that share a store.

use actix_web::{
    App, HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{
    Idempotency, Key, RecordId, idempotent,
    scope::{self, ScopeId},
};
use idempotent_core::clock::{ManualClock, Timestamp};
use test_support::{FaultyStore, Probe, Request, Server};

#[idempotent(scope = "scope::global")]
#[post("/pay")]
async fn pay(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// An application whose handler responds with this name.
fn application(name: &'static str, idempotency: Idempotency) -> Server {
    let probe = Probe::responding(move |_| HttpResponse::Created().body(name));
    Server::start(move || {
        let (idempotency, probe) = (idempotency.clone(), probe.clone());
        App::new().configure(move |config: &mut ServiceConfig| {
            config.app_data(idempotency).app_data(Data::new(probe)).service(pay);
        })
    })
}

#[test]
fn applications_in_two_namespaces_of_one_store_do_not_share_keys() {
    let store = FaultyStore::new(ManualClock::at(Timestamp::from_millis(1)));
    let idempotency = |namespace| Idempotency::builder(store.clone()).namespace(namespace).build();
    let shop = application("shop", idempotency("shop"));
    let bank = application("bank", idempotency("bank"));
    let other_shop = application("other shop", idempotency("shop"));
    let request = Request::post("/pay").key("k");
    assert_eq!(shop.send(&request).text(), "shop");
    assert_eq!(bank.send(&request).text(), "bank");
    // Instances of one application share their keys.
    assert_eq!(other_shop.send(&request).text(), "shop");
}

/// The default namespace is the package of the handler: here, the package of these tests.
#[test]
fn the_package_of_the_handler_is_the_default_namespace() {
    let (scope, key) = (ScopeId::of("user", "alice"), Key::from_text("k").unwrap());
    let idempotency =
        Idempotency::new(FaultyStore::new(ManualClock::at(Timestamp::from_millis(1))));
    let id = idempotency.record_id(&scope, "POST /pay", &key).unwrap();
    assert_eq!(id, RecordId::new("tests", &scope, "POST /pay", &key));
}
