#[idempotent(scope = "scope::global", key_from = "keys::delivery")]
#[post("/webhooks")]
async fn receive(event: web::Json<Event>) -> HttpResponse {
    HttpResponse::Ok().finish()
}
