#![deny(warnings)]

use actix_web::{App, HttpResponse, post};
use idempotent_actix::{
    idempotent,
    scope::{ScopeId, ScopeKey},
};

/// The principal of one configuration; the other has another type.
struct Tenant(String);

impl actix_web::FromRequest for Tenant {
    type Error = actix_web::Error;
    type Future = std::future::Ready<Result<Self, Self::Error>>;

    fn from_request(
        request: &actix_web::HttpRequest,
        _: &mut actix_web::dev::Payload,
    ) -> Self::Future {
        std::future::ready(Ok(Self(request.path().to_owned())))
    }
}

impl ScopeKey for Tenant {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("tenant", self.0.as_str()))
    }
}

#[idempotent(scope = "user", in_flight = "poll")]
#[post("/orders")]
async fn create(#[cfg(any())] user: Missing, #[cfg(all())] user: Tenant) -> HttpResponse {
    HttpResponse::Ok().body(user.0)
}

#[idempotent(scope = "user")]
#[post("/refunds")]
async fn refund(#[cfg(any())] user: Missing, #[cfg(not(any()))] user: Tenant) -> HttpResponse {
    HttpResponse::Ok().body(user.0)
}

fn main() {
    let _ = || App::new().service(create).service(refund);
}
