#[idempotent(scope = "user", fingerprint = "none")]
#[patch("/orders/{id}")]
pub(crate) async fn update_order(
    mut user: User,
    web::Path(id): web::Path<u64>,
    _: HttpRequest,
    update_order: web::Form<Order>,
) -> HttpResponse {
    user.touch(id, update_order);
    HttpResponse::Ok().finish()
}
