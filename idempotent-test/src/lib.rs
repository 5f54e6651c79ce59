#![doc = include_str!("../README.md")]

mod failure;
mod fixtures;
mod observation;
mod process;
mod proof;
mod request;
mod response;
mod service;
mod suspension;
mod tap;

pub use failure::Unproved;
pub use proof::{Proof, Proved};
pub use response::TestResponse;
pub use service::TestService;
pub use tap::{HttpTap, TappedRequest};

/// Asserts that the handler of a request is safe to retry: see [`Proof`], of which this is the
/// shortest form.
///
/// # Panics
/// Panics with one line that says what happened how often, where, and how to run only that trial.
///
/// ```
/// use actix_web::{App, HttpResponse, post, test::TestRequest};
/// use idempotent_actix::idempotent;
/// use idempotent_test::{TestService, assert_idempotent};
///
/// #[idempotent(scope = "idempotent_actix::scope::global")]
/// #[post("/greetings")]
/// async fn greet(name: String) -> HttpResponse {
///     HttpResponse::Created().body(format!("Hello, {name}!"))
/// }
///
/// # #[actix_web::main]
/// # async fn main() {
/// let service = TestService::new(|idempotency| App::new().app_data(idempotency).service(greet));
/// assert_idempotent!(service, TestRequest::post().uri("/greetings").set_payload("Ada"));
/// # }
/// ```
#[macro_export]
macro_rules! assert_idempotent {
    ($service:expr, $request:expr $(,)?) => {
        match $service.prove($request).await {
            Ok(proved) => proved,
            Err(unproved) => ::std::panic!("{unproved}"),
        }
    };
    ($service:expr, $request:expr, observing: $observe:expr $(,)?) => {
        match $service.prove($request).observing($observe).await {
            Ok(proved) => proved,
            Err(unproved) => ::std::panic!("{unproved}"),
        }
    };
}
