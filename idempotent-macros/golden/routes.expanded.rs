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
) -> ::idempotent_actix::__private::Answer {
    async fn order(user: User) -> &'static str {
        "ordered"
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "order", routes : [("POST", "/orders", "order"), ("PUT",
        "/order", "order")], ttl : 86400000u64, lease : 30000u64, wait : 0u64, timeout :
        0u64, key : Required, fingerprint : Raw, record : Final, abandoned : Retry, claim
        : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, order(user))
}
