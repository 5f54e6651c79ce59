/// The handler `order` without its idempotency guard, for unit tests.
fn order_unguarded(user: User) -> impl ::core::future::Future<Output = &'static str> {
    async fn order(user: User) -> &'static str {
        "ordered"
    }
    order(user)
}
#[routes]
#[post("/orders")]
#[put("/order")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        (::idempotent_actix::__private::Post, ::idempotent_actix::__private::Put),
        ::idempotent_actix::__private::Raw,
    >,
    user: User,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "order", routes : [("POST", "/orders",
        "order"), ("PUT", "/order", "order")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | user : User |
        ::idempotent_actix::__private::scope_of(& user))) of User], parameters : [], set
        : [],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, order_unguarded(user))
}
