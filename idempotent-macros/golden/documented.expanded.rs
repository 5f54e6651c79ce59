/// The handler `create_payment` without its idempotency guard, for unit tests.
#[allow(clippy::unused_async)]
pub fn create_payment_unguarded(
    user: User,
    body: web::Json<NewPayment>,
) -> impl ::core::future::Future<Output = actix_web::Result<HttpResponse>> {
    #[tracing::instrument(skip(body))]
    async fn create_payment(
        user: User,
        body: web::Json<NewPayment>,
    ) -> actix_web::Result<HttpResponse> {
        Ok(HttpResponse::Created().finish())
    }
    create_payment(user, body)
}
/// Charges a card.
#[post("/v1/payments")]
#[allow(clippy::unused_async)]
#[utoipa::path(responses((status = 201)))]
pub fn create_payment(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Raw,
    >,
    user: User,
    body: web::Json<NewPayment>,
) -> ::idempotent_actix::__private::Response {
    let __operation = ::idempotent_actix::__private::operation! {
        package : "idempotent-macros", handler : "create_payment", routes : [("POST",
        "/v1/payments", "create_payment")], scope : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | user : User |
        ::idempotent_actix::__private::scope_of(& user))) of User], parameters :
        [web::Json < NewPayment >], set : [.ttl(86400000u64)],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, create_payment_unguarded(user, body))
}
