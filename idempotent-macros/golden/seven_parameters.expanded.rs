/// The handler `seven` without its idempotency guard, for unit tests.
fn seven_unguarded(
    a: A,
    b: B,
    c: C,
    d: D,
    e: E,
    f: F,
    g: G,
) -> impl ::core::future::Future<Output = HttpResponse> {
    async fn seven(a: A, b: B, c: C, d: D, e: E, f: F, g: G) -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    seven(a, b, c, d, e, f, g)
}
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
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "seven", routes : [("POST", "/",
        "seven")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | a : A |
        ::idempotent_actix::__private::scope_of(& a))) of A], parameters : [B, C, D, E,
        F, G], set : [],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&a);
    __guard.run(__operation, __scope, seven_unguarded(a, b, c, d, e, f, g))
}
