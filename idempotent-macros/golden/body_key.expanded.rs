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
        ::idempotent_actix::__private::Ignored,
        ::idempotent_actix::__private::key_from!(Json("/id") in "receive"),
    >,
    event: web::Json<Event>,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "receive", routes : [("POST",
        "/webhooks", "receive")], scope :
        [Function(::idempotent_actix::__private::scope_function(& scope::global))],
        parameters : [web::Json < Event >], set :
        [.key_from(::idempotent_actix::__private::source_id!(Json("/id") in "receive"),
        ::idempotent_actix::__private::key_source!(Json("/id")),)
        .fingerprint(::idempotent_actix::__private::Fingerprint::Ignored)],
    };
    let __scope = __guard.scope(__operation);
    __guard.run(__operation, __scope, receive_unguarded(event))
}
