#[idempotent(scope = "scope::bearer_token")]
#[actix_web::route("/orders", method = "POST", method = "PATCH")]
async fn order() -> HttpResponse {
    HttpResponse::Ok().finish()
}
