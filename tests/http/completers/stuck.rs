//! Operations that hang or panic when they are resumed, and what they cost others.

use std::{
    cell::Cell,
    future::{Ready, pending},
    rc::Rc,
};

use actix_web::{FromRequest, HttpRequest, dev::Payload, rt::time::timeout};

use super::*;

/// The time limit of a resumed operation may be long.
#[test]
fn operations_that_hang_do_not_delay_one_more() {
    let app = TestApp::responding(|_| panic!("after the charge"));
    let server = app.serve(services);
    let keys = [0, 1, 2, 3].map(|number| format!("k{number}"));
    for key in &keys {
        let request = Request::post("/orders").user("alice").key(key.clone()).body("a book");
        assert_eq!(server.send(&request).status, 500);
    }
    let begun = Rc::new(Cell::new(0));
    let work = move |_: Operation, _: String| {
        let before = begun.replace(begun.get() + 1);
        async move {
            if before < 3 {
                pending::<()>().await;
            }
            HttpResponse::Ok().finish()
        }
    };
    let completer = app.idempotency.completer().resume("POST /orders", work);
    let pass = async { timeout(Duration::from_secs(1), completer.pass()).await };
    assert!(System::new().block_on(pass).is_err(), "nothing hangs");
    let done = |key: &&String| {
        app.record("alice", "POST /orders", key).unwrap().record.status == Some(200)
    };
    assert_eq!(keys.iter().filter(done).count(), 1);
}

struct Panics;

impl FromRequest for Panics {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, actix_web::Error>>;

    fn from_request(_: &HttpRequest, _: &mut Payload) -> Self::Future {
        panic!("the panic of an extractor")
    }
}

#[test]
fn an_extractor_that_panics_does_not_end_the_pass() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/orders")).status, 500);
    let work = |_: Operation, _: Panics, _: String| async { HttpResponse::Ok().finish() };
    let completer = app.idempotency.completer().resume_with("POST /orders", work);
    assert_eq!(System::new().block_on(completer.pass()).unwrap(), 0);
    assert!(log::captured().contains("an extractor of a resumed operation panicked"));
    app.advance(Duration::from_secs(30));
    assert_eq!((pass(&app), app.probe.runs()), (1, 2), "it is resumed again");
}
