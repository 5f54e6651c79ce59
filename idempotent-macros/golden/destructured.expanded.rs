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
) -> ::idempotent_actix::__private::Answer {
    async fn update_order(
        mut user: User,
        web::Path(id): web::Path<u64>,
        _: HttpRequest,
        update_order: web::Form<Order>,
    ) -> HttpResponse {
        user.touch(id, update_order);
        HttpResponse::Ok().finish()
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "update_order", routes : [("PATCH", "/orders/{id}",
        "update_order")], ttl : 86400000u64, lease : 30000u64, wait : 0u64, timeout :
        0u64, key : Required, fingerprint : Nothing, record : Final, abandoned : Retry,
        claim : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, update_order(user, __arg1, __arg2, __arg3))
}
