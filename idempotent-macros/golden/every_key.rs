#[idempotent(
    scope = "user",
    ttl = "1h30m",
    lease = "5s",
    wait = "500ms",
    timeout = "2m",
    key = "optional",
    key_from = "header:Webhook-Id",
    fingerprint = "fingerprints::amount",
    query = "unordered",
    record = "success",
    abandoned = "hold",
    claim = "lease",
    in_flight = "poll",
    method = "PUT",
    name = "put-order",
    crate = "my_crate::reexport"
)]
#[put("/orders/{id}")]
async fn put_order(user: User, id: web::Path<u64>) -> impl Responder {
    id.to_string()
}
