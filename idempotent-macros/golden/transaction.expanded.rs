#[post("/orders")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Raw,
    >,
    user: User,
    __arg1: (idempotent_actix::Tx<Postgres>, Path<u64>),
) -> ::idempotent_actix::__private::Answer {
    async fn order(
        user: User,
        (Tx(mut tx), Path(id)): (idempotent_actix::Tx<Postgres>, Path<u64>),
    ) -> Order {
        Order::insert(&mut tx, id).await
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "order", routes : [("POST", "/orders", "order")], ttl :
        40000u64, lease : 20000u64, wait : 0u64, timeout : 0u64, key : Required,
        fingerprint : Raw, record : Final, abandoned : Retry, claim : Transaction,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, order(user, __arg1))
}
