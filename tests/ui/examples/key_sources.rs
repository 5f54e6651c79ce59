#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, Error, HttpRequest, HttpResponse, delete, post, web};
use idempotent_actix::{idempotent, scope};
use utoipa::OpenApi;

#[derive(serde::Deserialize, utoipa::ToSchema)]
struct Event {
    id: u64,
}

mod keys {
    use actix_web::{HttpRequest, http::header::HeaderValue};

    pub fn delivery<'a>(request: &'a HttpRequest, _: &'a [u8]) -> Option<&'a str> {
        let id = request.headers().get("x-github-delivery");
        id.map(HeaderValue::to_str)?.ok()
    }
}

fn body(_: &HttpRequest, body: &[u8]) -> Result<String, Error> {
    String::from_utf8(body.to_vec()).map_err(actix_web::error::ErrorBadRequest)
}

macro_rules! handlers {
    ($($name:ident, $path:literal, $source:literal;)*) => { $(
        #[utoipa::path(responses((status = 200)))]
        #[idempotent(scope = "scope::global", key_from = $source)]
        #[post($path)]
        async fn $name(event: web::Json<Event>) -> HttpResponse {
            HttpResponse::Ok().body(event.id.to_string())
        }
    )* };
}

handlers! {
    header, "/header", "header:X-GitHub-Delivery";
    form, "/form", "form:a \"quoted\" field";
    json, "/json", "json:/data/0/a~1b~0";
    by_path, "/path", "keys::delivery";
    by_absolute_path, "/absolute", "crate::keys::delivery";
    by_name, "/name", "body";
}

/// The body of a `DELETE` request has no meaning, but a header and a function do not need one.
#[idempotent(scope = "scope::global", key_from = "header:delivery-id")]
#[delete("/header")]
async fn delete_by_header() -> HttpResponse {
    HttpResponse::Ok().finish()
}

struct Receiver;

impl Receiver {
    #[idempotent(scope = "scope::global", method = "POST", key_from = "keys::delivery")]
    async fn receive<T: ToString + 'static>(number: web::Path<T>) -> String {
        number.to_string()
    }
}

#[derive(OpenApi)]
#[openapi(paths(header, form, json, by_path, by_absolute_path, by_name))]
struct Api;

fn main() {
    /// Has the name of another handler.
    #[idempotent(scope = "scope::global", key_from = "self::body")]
    #[post("/local")]
    async fn by_name() -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    let _ = || {
        let app = App::new().service(header).service(form).service(json).service(by_path);
        let app = app.service(by_absolute_path).service(by_name).service(delete_by_header);
        app.route("/{number}", web::post().to(Receiver::receive::<u64>))
    };
    assert_eq!(Api::openapi().paths.paths.len(), 6);
}
