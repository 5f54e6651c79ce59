#[idempotent(scope = "user", fingerprint = "json", ignore = ["/metadata/sent_at"])]
#[post("/orders")]
async fn order(user: User, order: Json<Order>) -> Json<Order> {
    order
}
