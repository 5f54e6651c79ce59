#[idempotent(
    scope = "user",
    fingerprint = "json",
    only = ["/amount",
    "/currency"],
    content_type = "equivalent"
)]
#[post("/orders")]
async fn order(user: User, order: Json<Order>) -> Json<Order> {
    order
}
