#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{
    App, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ParseError,
    http::header::{Header, HeaderName, HeaderValue, InvalidHeaderValue, TryIntoHeaderValue},
    post, web,
};
use idempotent_actix::{
    idempotent,
    scope::{ScopeId, ScopeKey},
};
use std::future::{Ready, ready};

#[derive(Clone, serde::Deserialize)]
struct User(String);

impl ScopeKey for User {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.0.as_str()))
    }
}

impl FromRequest for User {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(_: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(String::new())))
    }
}

impl TryIntoHeaderValue for User {
    type Error = InvalidHeaderValue;

    fn try_into_value(self) -> Result<HeaderValue, Self::Error> {
        HeaderValue::from_str(&self.0)
    }
}

impl Header for User {
    fn name() -> HeaderName {
        HeaderName::from_static("x-user")
    }

    fn parse<M: actix_web::HttpMessage>(_: &M) -> Result<Self, ParseError> {
        Ok(Self(String::new()))
    }
}

macro_rules! handlers {
    ($($name:ident: $parameter:ty;)*) => {
        $(
            #[idempotent(scope = "principal")]
            #[post("/payments/{id}")]
            async fn $name(principal: $parameter, body: String) -> HttpResponse {
                drop(principal);
                HttpResponse::Ok().body(body)
            }
        )*

        fn main() {
            let _ = || App::new()$(.service($name))*;
        }
    };
}

handlers! {
    own: User;
    optional: Option<User>;
    path_of_text: web::Path<String>;
    path_of_number: web::Path<u64>;
    path_of_own: web::Path<User>;
    optional_path: Option<web::Path<i32>>;
    data_of_text: web::ReqData<String>;
    data_of_own: web::ReqData<User>;
    optional_data: Option<web::ReqData<User>>;
    header: web::Header<User>;
}
