/// The handler `order` without its idempotency guard, for unit tests.
fn order_unguarded(
    user: User,
    __arg1: (idempotent_actix::Tx<Postgres>, Path<u64>),
) -> impl ::core::future::Future<Output = Order> {
    async fn order(
        user: User,
        (Tx(mut tx), Path(id)): (idempotent_actix::Tx<Postgres>, Path<u64>),
    ) -> Order {
        Order::insert(&mut tx, id).await
    }
    order(user, __arg1)
}
#[post("/orders")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Raw,
    >,
    user: User,
    __arg1: (idempotent_actix::Tx<Postgres>, Path<u64>),
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "order", routes : [("POST", "/orders",
        "order")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | user : User |
        ::idempotent_actix::__private::scope_of(& user))) of User], parameters :
        [(idempotent_actix::Tx < Postgres >, Path < u64 >)] with idempotent_actix::Tx <
        Postgres >, set : [.claim(::idempotent_actix::__private::ClaimMode::Transaction)
        .ttl(40000u64)],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, order_unguarded(user, __arg1))
}
