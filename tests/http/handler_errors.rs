//! Problems of handlers that return the error of a call of their operation. By then the handler may
//! have called other services, so no problem reports that the request was not run.

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Operation, idempotent};
use test_support::{Fault, Op, Probe, Request, TestApp};

use super::handlers::{User, assert_problem};

type Response = actix_web::Result<HttpResponse>;

#[idempotent(scope = "_user")]
#[post("/reporting")]
async fn reporting(_user: User, operation: Operation, probe: Data<Probe>) -> Response {
    report(&operation, &probe).await
}

#[idempotent(scope = "_user", abandoned = "hold")]
#[post("/holding")]
async fn holding(_user: User, operation: Operation, probe: Data<Probe>) -> Response {
    report(&operation, &probe).await
}

async fn report(operation: &Operation, probe: &Probe) -> Response {
    let response = probe.run().await;
    operation.progress("charged").await?;
    Ok(response)
}

fn services(config: &mut ServiceConfig) {
    config.service(reporting).service(holding);
}

fn request(path: &str) -> Request {
    Request::post(path).user("alice").key("k").body("b")
}

#[test]
fn a_permanent_error_of_the_store_in_a_handler_is_not_a_request_that_was_not_run() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.store.fail(Op::Note, 1, Fault::Permanent);
    let failed = server.send(&request("/reporting"));
    assert_problem(&failed, 500, "handler_failed", false);
    let detail = "Part of the operation may have been done. The reason is in the server's log.";
    assert_eq!(failed.json()["detail"], detail);
}

#[test]
fn a_handler_whose_key_is_held_after_an_error_of_the_store_is_not_retryable() {
    for (fault, code) in
        [(Fault::Before, "store_unavailable"), (Fault::Permanent, "handler_failed")]
    {
        let app = TestApp::new();
        let server = app.serve(services);
        app.store.fail(Op::Note, 2, fault);
        let failed = server.send(&request("/holding"));
        assert_eq!(assert_problem(&failed, 500, code, false), None, "it has Retry-After");
        let detail = "Check what this request did. Sending it again will not run it.";
        assert_eq!(failed.json()["detail"], detail);
        assert_problem(&server.send(&request("/holding")), 409, "outcome_unknown", false);
        assert_eq!(app.probe.runs(), 1);
    }
}
