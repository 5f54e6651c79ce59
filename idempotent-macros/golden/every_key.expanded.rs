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
        package : "idempotent-macros", handler : "put_order", routes : [("PUT",
        "/orders/{id}", "put_order")], scope : [Found Parameter(| __request |
        my_crate::reexport::__private::scope_of_request(__request, | user : User |
        my_crate::reexport::__private::scope_of(& user))) of User], parameters :
        [web::Path < u64 >], set : [.name("put-order").optional_key()
        .key_from(my_crate::reexport::__private::source_id!(Header("webhook-id") in
        "put_order"), my_crate::reexport::__private::key_source!(Header("webhook-id")),)
        .fingerprint(my_crate::reexport::__private::Fingerprint::Custom)
        .claim(my_crate::reexport::__private::ClaimMode::Lease).ttl(5400000u64)
        .lease(5000u64).wait(500u64).timeout(120000u64)
        .query(my_crate::reexport::__private::rules::QueryForm::Unordered)
        .record(my_crate::reexport::__private::rules::RecordRule::Success)
        .abandoned(my_crate::reexport::__private::rules::OnAbandon::Hold)
        .in_flight(my_crate::reexport::__private::rules::InFlightRule::Poll)],
    };
    let __scope = my_crate::reexport::__private::scope_of(&user);
    __guard
        .fingerprint_by(fingerprints::amount)
        .run(__operation, __scope, put_order_unguarded(user, id))
}
