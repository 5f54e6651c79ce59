/// The handler `order` without its idempotency guard, for unit tests.
fn order_unguarded(
    user: User,
    __arg1: Json<Order>,
) -> impl ::core::future::Future<Output = Json<Order>> {
    async fn order(user: User, order: Json<Order>) -> Json<Order> {
        order
    }
    order(user, __arg1)
}
#[post("/orders")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Whole,
    >,
    user: User,
    __arg1: Json<Order>,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "order", routes : [("POST", "/orders",
        "order")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | user : User |
        ::idempotent_actix::__private::scope_of(& user))) of User], parameters : [Json <
        Order >], set :
        [.fingerprint(::idempotent_actix::__private::Fingerprint::JsonPart(::idempotent_actix::__private::JsonPart::Except(&
        ["/metadata/sent_at"])))],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, order_unguarded(user, __arg1))
}
