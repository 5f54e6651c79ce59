#[allow(clippy::too_many_arguments)]
#[post("/")]
fn seven(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Raw,
    >,
    a: A,
    b: B,
    c: C,
    d: D,
    e: E,
    f: F,
    g: G,
) -> ::idempotent_actix::__private::Answer {
    async fn seven(a: A, b: B, c: C, d: D, e: E, f: F, g: G) -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "seven", routes : [("POST", "/", "seven")], ttl :
        86400000u64, lease : 30000u64, wait : 0u64, timeout : 0u64, key : Required,
        fingerprint : Raw, record : Final, abandoned : Retry, claim : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&a);
    __guard.run(__operation, __scope, seven(a, b, c, d, e, f, g))
}
