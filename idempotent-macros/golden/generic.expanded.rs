fn create<T, const LIMIT: usize>(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Json,
    >,
    user: User,
    body: web::Json<T>,
) -> ::idempotent_actix::__private::Answer
where
    T: Serialize + DeserializeOwned + 'static,
{
    async fn create<T, const LIMIT: usize>(
        user: User,
        body: web::Json<T>,
    ) -> Result<web::Json<T>, Failure>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        Ok(body)
    }
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "create", routes : [("POST")], ttl : 86400000u64, lease :
        30000u64, wait : 0u64, timeout : 0u64, key : Required, fingerprint : Json, record
        : Final, abandoned : Retry, claim : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, create::<T, LIMIT>(user, body))
}
