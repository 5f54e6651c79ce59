//! Guarded handlers behind what responds in their place.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{idempotent, scope};
use idempotent_client::{ErrorKind, IdempotentRequest, Outcome};
use test_support::{Probe, TestApp, wait_for};

use super::{client, idempotency, wait};

#[idempotent(scope = "scope::global")]
#[post("/orders")]
async fn order(probe: Data<Probe>) -> actix_web::Result<HttpResponse> {
    Ok(probe.run().await)
}

/// Does its own work, and passes on what the next service has responded, with all its headers.
#[idempotent(scope = "scope::global")]
#[post("/passed-on")]
async fn passed_on(request: HttpRequest, probe: Data<Probe>) -> actix_web::Result<HttpResponse> {
    probe.run().await;
    let mut response = HttpResponse::ServiceUnavailable();
    for (name, value) in request.headers() {
        if name.as_str() == "x-mark" {
            response.insert_header(("idempotency-not-run", value.clone()));
        }
    }
    response.insert_header(("retry-after", "60"));
    Ok(response.body(r#"{"type":"t","code":"overloaded","retryable":true}"#))
}

fn services(config: &mut ServiceConfig) {
    config.service(order).service(passed_on);
}

#[test]
fn a_server_that_shuts_down_proves_that_it_has_not_run_the_request() {
    let app = TestApp::new();
    let server = app.serve(services);
    assert!(wait_for("the drain", app.idempotency.drain(Duration::from_secs(5))));
    let url = format!("http://{}/orders", server.address());
    let short = Duration::from_millis(500);
    let request = client(&idempotency()).post(&url).idempotent().deadline(short);
    let error = wait(request.send()).unwrap_err();
    assert_eq!(error.last_status().unwrap().as_u16(), 503);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::NotDone));
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn a_server_that_is_misconfigured_proves_that_it_has_not_run_the_request() {
    let app = TestApp::new();
    // Without the application's handle.
    let probe = Data::new(app.probe.clone());
    let server = test_support::Server::start(move || {
        actix_web::App::new().app_data(probe.clone()).configure(services)
    });
    let url = format!("http://{}/orders", server.address());
    let error = wait(client(&idempotency()).post(&url).idempotent().send()).unwrap_err();
    assert_eq!(error.last_status().unwrap().as_u16(), 500);
    let expected = (ErrorKind::Misconfigured, Outcome::NotDone, 1);
    assert_eq!((error.kind(), error.outcome(), error.attempts()), expected);
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn a_handler_that_passes_on_a_mark_proves_nothing() {
    let app = TestApp::new();
    let server = app.serve(services);
    // The mark of this very key, as if both services had got the same.
    let request = test_support::Request::post("/passed-on").key("order-17");
    let response = server.send(&request.header("x-mark", "0e00a7ee36527ee8"));
    assert_eq!((response.status, app.probe.runs()), (503, 1));
    assert_eq!(response.header("idempotency-not-run"), None);
}
