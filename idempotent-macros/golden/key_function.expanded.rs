/// The handler `receive` without its idempotency guard, for unit tests.
fn receive_unguarded(
    event: web::Json<Event>,
) -> impl ::core::future::Future<Output = HttpResponse> {
    async fn receive(event: web::Json<Event>) -> HttpResponse {
        HttpResponse::Ok().finish()
    }
    receive(event)
}
#[post("/webhooks")]
fn receive(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Raw,
        ::idempotent_actix::__private::key_from!(Function(keys::delivery) in "receive"),
    >,
    event: web::Json<Event>,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "receive", routes : [("POST", "/webhooks", "receive")],
        durations : [], rules : [], key : Required, fingerprint : Raw, claim : Lease,
        scope : [Function(| __request |
        ::idempotent_actix::__private::scope_by(__request, scope::global))], extractors :
        [web::Json < Event >], key_from : Function(keys::delivery),
    };
    let __scope = __guard.scope(__operation);
    __guard.run(__operation, __scope, receive_unguarded(event))
}
