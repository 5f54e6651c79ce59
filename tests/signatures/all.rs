use std::fmt;

use actix_web::{HttpRequest, HttpResponse, ResponseError, post, web};
use idempotent_actix::{IntoKey, idempotent, scope::{self, IntoScopeKey, ScopeId, ScopeKey}};

fn tenant(request: &HttpRequest) -> Option<&str> {
    request.headers().get("x-tenant")?.to_str().ok()
}

fn tenant_or_error(request: &HttpRequest) -> actix_web::Result<String> {
    tenant(request).map(str::to_owned).ok_or_else(|| actix_web::error::ErrorForbidden("no tenant"))
}

#[derive(Debug)]
struct NoTenant;

impl fmt::Display for NoTenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no tenant")
    }
}

impl ResponseError for NoTenant {}

fn tenant_or_custom_error(request: &HttpRequest) -> Result<&str, NoTenant> {
    tenant(request).ok_or(NoTenant)
}

fn opaque_scope(request: &HttpRequest) -> impl IntoScopeKey {
    tenant(request).map(str::to_owned)
}

fn scope_id(request: &HttpRequest) -> ScopeId {
    ScopeId::of("tenant", tenant(request).unwrap_or_default())
}

fn opaque_bytes(_: &HttpRequest, body: &[u8]) -> impl AsRef<[u8]> {
    body.to_vec()
}

fn first_word<'a>(_: &HttpRequest, body: &'a [u8]) -> &'a [u8] {
    body.split(|byte| *byte == b' ').next().unwrap_or_default()
}

fn path_and_length(request: &HttpRequest, body: &[u8]) -> String {
    format!("{} {}", request.path(), body.len())
}

struct User(u64);

impl ScopeKey for User {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.0.to_string()))
    }
}

fn delivery(request: &HttpRequest, _: &[u8]) -> Option<String> {
    Some(request.headers().get("x-delivery")?.to_str().ok()?.to_owned())
}

fn first_line<'a>(_: &HttpRequest, body: &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(body).ok()?.lines().next()
}

fn target<'a>(request: &'a HttpRequest, _: &[u8]) -> Result<&'a str, NoTenant> {
    tenant(request).ok_or(NoTenant)
}

fn opaque_key(request: &HttpRequest, _: &[u8]) -> impl IntoKey {
    request.path().to_owned()
}

#[idempotent(scope = "tenant", key_from = "delivery")]
#[post("/")]
async fn owned_key() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "tenant", key_from = "first_line", fingerprint = "first_word")]
#[post("/")]
async fn key_of_body(body: String) -> HttpResponse {
    HttpResponse::Ok().body(body)
}

#[idempotent(scope = "tenant", key_from = "target", key = "optional")]
#[post("/")]
async fn key_of_request() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "tenant", key_from = "opaque_key")]
#[post("/")]
async fn an_opaque_key() -> HttpResponse {
    HttpResponse::Ok().finish()
}

macro_rules! handlers {
    ($($name:ident $scope:literal $fingerprint:literal)*) => { $(
        #[idempotent(scope = $scope, fingerprint = $fingerprint)]
        #[post("/")]
        async fn $name(body: String) -> HttpResponse {
            HttpResponse::Ok().body(body)
        }
    )* };
}

handlers! {
    option "tenant" "body"
    result "tenant_or_error" "json"
    custom_error "tenant_or_custom_error" "none"
    opaque "opaque_scope" "opaque_bytes"
    id "scope_id" "first_word"
    global "scope::global" "path_and_length"
    bearer "scope::bearer_token" "body"
    ip "scope::peer_ip" "body"
}

#[idempotent(scope = "user", ttl = "24h")]
#[post("/")]
async fn data(user: web::ReqData<SessionUser>) -> HttpResponse {
    HttpResponse::Ok().body(user.0.clone())
}

#[idempotent(scope = "r#type")]
#[post("/{type}")]
async fn raw(r#type: web::Path<String>) -> HttpResponse {
    HttpResponse::Ok().body(r#type.into_inner())
}

#[derive(Clone)]
struct SessionUser(String);

impl ScopeKey for SessionUser {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.0.as_str()))
    }
}

let _ = (owned_key, key_of_body, key_of_request, an_opaque_key);
let _ = (option, result, custom_error, opaque, id, global, bearer, ip, data, raw, User(1));
