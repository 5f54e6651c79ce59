#[idempotent(scope = "scope::global", key_from = "json:/id", fingerprint = "none")]
#[post("/webhooks")]
async fn receive(event: web::Json<Event>) -> HttpResponse {
    HttpResponse::Ok().finish()
}
