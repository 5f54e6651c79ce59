/// The handler `order` without its idempotency guard, for unit tests.
fn order_unguarded() -> impl ::core::future::Future<Output = HttpResponse> {
    async fn order() -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    order()
}
#[actix_web::route("/orders", method = "POST", method = "PATCH")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        (::idempotent_actix::__private::Post, ::idempotent_actix::__private::Patch),
        ::idempotent_actix::__private::Raw,
    >,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "order", routes : [("POST", "/orders",
        "order"), ("PATCH", "/orders", "order")], scope :
        [Function(::idempotent_actix::__private::scope_function(& scope::bearer_token))],
        parameters : [], set : [],
    };
    let __scope = __guard.scope(__operation);
    __guard.run(__operation, __scope, order_unguarded())
}
