//! Keys in states that only a crash leads to, and what a test can look at.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::time::Duration;

use actix_web::{App, HttpResponse, http::StatusCode, post, test::TestRequest};
use idempotent_actix::{RequestOutcome, idempotent, store::RecordState};
use idempotent_test::TestService;

#[idempotent(scope = "idempotent_actix::scope::global", ttl = "1h")]
#[post("/orders")]
async fn order(item: String) -> HttpResponse {
    match item.as_str() {
        "too much" => HttpResponse::ServiceUnavailable().finish(),
        _ => HttpResponse::Created().body(item),
    }
}

fn service() -> TestService {
    TestService::new(|idempotency| App::new().app_data(idempotency).service(order))
}

fn request(item: &'static str) -> TestRequest {
    TestRequest::post().uri("/orders").insert_header(("Idempotency-Key", "k-1")).set_payload(item)
}

#[actix_web::test]
async fn a_key_can_be_left_in_flight_until_its_lease_expires() {
    let service = service();
    let id = service.leave_in_flight(request("tea")).await;
    assert_eq!(service.record(&id).await.unwrap().state, RecordState::InFlight);
    let retry = service.call(request("tea")).await;
    assert_eq!(retry.outcome, Some(RequestOutcome::InFlight));
    assert_eq!(retry.status, StatusCode::CONFLICT);
    service.pass_time(Duration::from_secs(60));
    let later = service.call(request("tea")).await;
    assert_eq!((later.outcome, later.text()), (Some(RequestOutcome::Ran), "tea"));
    assert_eq!(later.record, Some(id));
}

#[actix_web::test]
async fn a_key_can_be_held() {
    let service = service();
    let id = service.leave_held(request("tea")).await;
    assert_eq!(service.record(&id).await.unwrap().state, RecordState::Held);
    let retry = service.call(request("tea")).await;
    assert_eq!(retry.outcome, Some(RequestOutcome::OutcomeUnknown));
}

#[actix_web::test]
async fn a_response_is_recorded_until_its_ttl_has_passed() {
    let service = service();
    let first = service.call(request("tea")).await;
    service.assert_recorded(&first).await;
    service.pass_time(Duration::from_secs(3599));
    assert_eq!(service.call(request("tea")).await.outcome, Some(RequestOutcome::Replayed));
    service.pass_time(Duration::from_secs(2));
    assert_eq!(service.call(request("tea")).await.outcome, Some(RequestOutcome::Ran));
}

#[actix_web::test]
#[should_panic(expected = "the response is not recorded")]
async fn a_response_that_is_not_recorded_is_found() {
    let service = service();
    let failed = service.call(request("too much")).await;
    service.assert_recorded(&failed).await;
}

#[actix_web::test]
async fn what_is_proved_is_a_request_that_succeeds_at_a_guarded_handler() {
    let service = service();
    let refused = service.prove(request("too much")).await.unwrap_err().to_string();
    assert!(refused.contains("prove a request whose response is"), "{refused}");
    let elsewhere = service.prove(TestRequest::post().uri("/nowhere")).await.unwrap_err();
    assert!(elsewhere.to_string().contains("no guarded handler has responded"), "{elsewhere}");
    service.prove(request("tea")).await.unwrap();
}

#[actix_web::test]
async fn a_guard_that_is_turned_off_proves_nothing() {
    let service = service().configured(|builder| builder.enabled(false));
    let unguarded = service.prove(request("tea")).await.unwrap_err().to_string();
    assert!(unguarded.contains("the guard is turned off"), "{unguarded}");
}
