#[actix_web::route("/orders", method = "POST", method = "PATCH")]
fn order(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        (::idempotent_actix::__private::Post, ::idempotent_actix::__private::Patch),
        ::idempotent_actix::__private::Raw,
    >,
) -> ::idempotent_actix::__private::Answer {
    async fn order() -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "order", routes : [("POST", "/orders", "order"), ("PATCH",
        "/orders", "order")], ttl : 86400000u64, lease : 30000u64, wait : 0u64, timeout :
        0u64, key : Required, fingerprint : Raw, record : Final, abandoned : Retry, claim
        : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_by(
        __guard.request(),
        scope::bearer_token,
    );
    __guard.run(__operation, __scope, order())
}
