/// The handler `order` without its idempotency guard, for unit tests.
fn order_unguarded(
    user: User,
    #[cfg(feature = "audit")]
    audit: web::Data<Audit>,
) -> impl ::core::future::Future<Output = HttpResponse> {
    async fn order(
        user: User,
        #[cfg(feature = "audit")]
        #[allow(unused)]
        audit: web::Data<Audit>,
    ) -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    order(user, #[cfg(feature = "audit")] audit)
}
#[post("/orders")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Raw,
    >,
    user: User,
    #[cfg(feature = "audit")]
    audit: web::Data<Audit>,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "order", routes : [("POST", "/orders",
        "order")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | user : User |
        ::idempotent_actix::__private::scope_of(& user))) of User], parameters :
        [#[cfg(feature = "audit")] web::Data < Audit >], set : [],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard
        .run(
            __operation,
            __scope,
            order_unguarded(user, #[cfg(feature = "audit")] audit),
        )
}
