#[idempotent(scope = "user", ttl = "40s", claim = "transaction")]
#[post("/orders")]
async fn order(
    user: User,
    (Tx(mut tx), Path(id)): (idempotent_actix::Tx<Postgres>, Path<u64>),
) -> Order {
    Order::insert(&mut tx, id).await
}
