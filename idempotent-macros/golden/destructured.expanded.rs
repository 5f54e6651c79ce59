/// The handler `update_order` without its idempotency guard, for unit tests.
pub(crate) fn update_order_unguarded(
    user: User,
    __arg1: web::Path<u64>,
    __arg2: HttpRequest,
    __arg3: web::Form<Order>,
) -> impl ::core::future::Future<Output = HttpResponse> {
    async fn update_order(
        mut user: User,
        web::Path(id): web::Path<u64>,
        _: HttpRequest,
        update_order: web::Form<Order>,
    ) -> HttpResponse {
        user.touch(id, update_order);
        HttpResponse::Ok().finish()
    }
    update_order(user, __arg1, __arg2, __arg3)
}
#[patch("/orders/{id}")]
pub(crate) fn update_order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Patch,
        ::idempotent_actix::__private::Ignored,
    >,
    user: User,
    __arg1: web::Path<u64>,
    __arg2: HttpRequest,
    __arg3: web::Form<Order>,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "update_order", routes : [("PATCH",
        "/orders/{id}", "update_order")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | user : User |
        ::idempotent_actix::__private::scope_of(& user))) of User], parameters :
        [web::Path < u64 >, HttpRequest, web::Form < Order >], set :
        [.fingerprint(::idempotent_actix::__private::Fingerprint::Ignored)],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard
        .run(__operation, __scope, update_order_unguarded(user, __arg1, __arg2, __arg3))
}
