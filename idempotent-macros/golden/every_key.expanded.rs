/// The handler `put_order` without its idempotency guard, for unit tests.
fn put_order_unguarded(
    user: User,
    id: web::Path<u64>,
) -> impl ::core::future::Future<Output = impl Responder> {
    async fn put_order(user: User, id: web::Path<u64>) -> impl Responder {
        id.to_string()
    }
    put_order(user, id)
}
#[put("/orders/{id}")]
fn put_order(
    __guard: my_crate::reexport::__private::Guard<
        my_crate::reexport::__private::Optional,
        my_crate::reexport::__private::Put,
        my_crate::reexport::__private::Unordered<my_crate::reexport::__private::Whole>,
        my_crate::reexport::__private::key_from!(Header("webhook-id") in "put_order"),
    >,
    user: User,
    id: web::Path<u64>,
) -> my_crate::reexport::__private::Response {
    let __operation = my_crate::reexport::__private::operation! {
        name : "put-order", handler : "put_order", routes : [("PUT", "/orders/{id}",
        "put_order")], durations : [ttl 5400000u64, lease 5000u64, wait 500u64, timeout
        120000u64], rules : [query QueryForm Unordered, record RecordRule Success,
        abandoned OnAbandon Hold, in_flight InFlightRule Poll], key : Optional,
        fingerprint : Custom, claim : Lease, scope : [Found Parameter(| __request |
        my_crate::reexport::__private::scope_of_request(__request, | user : User |
        my_crate::reexport::__private::scope_of(& user))) of User], extractors :
        [web::Path < u64 >], key_from : Header("webhook-id"),
    };
    let __scope = my_crate::reexport::__private::scope_of(&user);
    __guard
        .fingerprint_by(fingerprints::amount)
        .run(__operation, __scope, put_order_unguarded(user, id))
}
