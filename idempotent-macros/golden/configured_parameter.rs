#[idempotent(scope = "user")]
#[post("/orders")]
async fn order(
    user: User,
    #[cfg(feature = "audit")]
    #[allow(unused)]
    audit: web::Data<Audit>,
) -> HttpResponse {
    HttpResponse::Ok().finish()
}
