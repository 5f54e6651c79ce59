//! The client and guarded handlers of this project.

use std::time::Duration;

use actix_web::{
    HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{Idempotency as Server, Operation, idempotent, scope};
use idempotent_client::{
    ClientIdempotency, ErrorKind, IdempotentRequest, Known, Lookup, LookupError, Specification,
};
use idempotent_core::{RecordId, runtime::Reconciliation};
use reqwest::{Client, Url, header};
use reqwest_middleware::ClientWithMiddleware;
use test_support::{Probe, TestApp};

use super::{idempotency, received, wait};

#[idempotent(scope = "scope::bearer_token", in_flight = "poll", ttl = "2h")]
#[post("/exports/{kind}")]
async fn export(operation: Operation, probe: Data<Probe>) -> actix_web::Result<HttpResponse> {
    operation.set_reference("ex_1").await?;
    operation.progress("3 of 10").await?;
    Ok(probe.run().await)
}

#[idempotent(scope = "scope::bearer_token", abandoned = "hold")]
#[post("/transfers")]
async fn transfer(operation: Operation, probe: Data<Probe>) -> actix_web::Result<HttpResponse> {
    operation.set_reference("tr_1").await?;
    Ok(probe.run().await)
}

fn services(config: &mut ServiceConfig) {
    config
        .service(Server::lookup_resource("/idempotency/keys/{key}"))
        .route("/idempotency", web::get().to(Server::specification_handler))
        .service(export)
        .service(transfer);
}

fn client(idempotency: &ClientIdempotency, user: &str) -> ClientWithMiddleware {
    let mut headers = header::HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {user}").parse().unwrap());
    idempotency.client(Client::builder().default_headers(headers).no_proxy()).unwrap()
}

fn url(server: &test_support::Server, path: &str) -> Url {
    format!("http://{}{path}", server.address()).parse().unwrap()
}

#[test]
fn a_duplicate_waits_for_the_first_response() {
    for (path, status) in [("/exports/csv", 202), ("/transfers", 409)] {
        let app = TestApp::new();
        let server = app.serve(services);
        app.probe.hold();
        let client = client(&idempotency(), "alice");
        let send = || {
            let request = client.post(url(&server, path)).idempotent();
            request.key("k-1".parse().unwrap()).body("order").send()
        };
        wait(async {
            let duplicate = async {
                tokio::task::spawn_blocking({
                    let probe = app.probe.clone();
                    move || probe.await_runs(1)
                })
                .await
                .unwrap();
                // It gets 202 or 409, with `Retry-After`.
                let short = client.post(url(&server, path)).idempotent();
                let short = short.key("k-1".parse().unwrap()).body("order");
                let error = short.deadline(Duration::from_millis(500)).send().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Deadline);
                assert_eq!(error.last_status().unwrap().as_u16(), status);
                app.probe.release_all();
                send().await
            };
            let (first, duplicate) = tokio::join!(send(), duplicate);
            let (first, duplicate) = (received(first).await, duplicate.unwrap());
            assert_eq!(duplicate.headers()["idempotency-replayed"], "true");
            assert_eq!(received(Ok(duplicate)).await, first);
            assert_eq!((first.0, app.probe.runs()), (201, 1));
        });
    }
}

#[test]
fn the_published_ttl_limits_the_age_of_a_key() {
    let app = TestApp::new();
    let server = app.serve(services);
    wait(async {
        let http = Client::builder().no_proxy().build().unwrap();
        let published = Specification::fetch(&http, url(&server, "/idempotency")).await.unwrap();
        // Longer than the ttl of an export, and shorter than that of a transfer.
        let patient = idempotency()
            .specification(published)
            .attempt_timeout(Duration::from_secs(3 * 60 * 60))
            .deadline(Duration::from_secs(3 * 60 * 60));
        let client = client(&patient, "alice");
        let error = client.post(url(&server, "/exports/csv")).idempotent().send().await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Expired);
        let sent = client.post(url(&server, "/transfers")).idempotent().send().await;
        assert_eq!(sent.unwrap().status().as_u16(), 201);
    });
}

#[test]
fn a_lookup_finds_what_became_of_a_key() {
    let app = TestApp::new();
    let server = app.serve(services);
    wait(async {
        let alice = client(&idempotency(), "alice");
        let at = url(&server, "/idempotency/keys");
        let lookup = Lookup::new(alice.clone(), at.clone()).wait(Duration::from_millis(200));
        let exports = lookup.clone().operation("POST /exports/{kind}");
        let key = "a key/with? signs".replace(' ', "-");
        assert_eq!(exports.find(&key).await.unwrap(), Known::Absent);
        app.probe.hold();
        let request = alice.post(url(&server, "/exports/csv")).idempotent();
        let sending = tokio::spawn(request.key(key.parse().unwrap()).send());
        while app.probe.runs() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let Known::InFlight(progress) = exports.find(&key).await.unwrap() else { panic!() };
        assert_eq!(progress.reference.as_deref(), Some("ex_1"));
        assert_eq!(progress.progress.as_deref(), Some("3 of 10"));
        app.probe.release_all();
        sending.await.unwrap().unwrap();
        let completed = Known::Completed {
            status: reqwest::StatusCode::CREATED,
            reference: Some("ex_1".into()),
        };
        assert_eq!(exports.find(&key).await.unwrap(), completed);
        assert_eq!(lookup.find(&key).await.unwrap(), completed, "in all operations");
        let transfers = lookup.clone().operation("POST /transfers");
        assert_eq!(transfers.find(&key).await.unwrap(), Known::Absent, "in another operation");
        // Another principal, and a server without the resource.
        let other = Lookup::new(client(&idempotency(), "bob"), at);
        assert_eq!(other.find(&key).await.unwrap(), Known::Absent);
        let none = Lookup::new(alice, url(&server, "/nothing/here"));
        let error = none.find(&key).await.unwrap_err();
        assert!(matches!(error, LookupError::Status { status, .. } if status == 404), "{error}");
    });
}

#[test]
fn a_step_is_reconciled_with_what_the_next_service_knows() {
    let app = TestApp::new();
    let server = app.serve(services);
    wait(async {
        let client = client(&idempotency(), "alice");
        let lookup = Lookup::new(client.clone(), url(&server, "/idempotency/keys"))
            .wait(Duration::from_millis(100));
        let record = RecordId::from_bytes([1; 32]);
        let key = record.derive_key("ship");
        let reconcile = || lookup.reconcile(&key, |id| id.map(str::to_owned));
        assert_eq!(reconcile().await.unwrap(), Reconciliation::Absent);
        app.probe.hold();
        let request = client.post(url(&server, "/transfers")).idempotent();
        let sending = tokio::spawn(request.key(key.into()).send());
        while app.probe.runs() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let error = reconcile().await.unwrap_err();
        assert!(matches!(error, LookupError::InFlight { .. }), "{error}");
        app.probe.release_all();
        sending.await.unwrap().unwrap();
        assert_eq!(reconcile().await.unwrap(), Reconciliation::Found("tr_1".to_owned()));
        let none = lookup.reconcile(&key, |_| None::<()>).await.unwrap();
        assert_eq!(none, Reconciliation::Absent, "without a result");
    });
}
