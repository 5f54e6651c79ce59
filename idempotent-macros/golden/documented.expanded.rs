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
) -> ::idempotent_actix::__private::Answer {
    #[tracing::instrument(skip(body))]
    async fn create_payment(
        user: User,
        body: web::Json<NewPayment>,
    ) -> actix_web::Result<HttpResponse> {
        Ok(HttpResponse::Created().finish())
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "create_payment", routes : [("POST", "/v1/payments",
        "create_payment")], ttl : 86400000u64, lease : 30000u64, wait : 0u64, timeout :
        0u64, key : Required, fingerprint : Raw, record : Final, abandoned : Retry, claim
        : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, create_payment(user, body))
}
