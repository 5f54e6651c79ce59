/// The handler `create` without its idempotency guard, for unit tests.
#[cfg(test)]
#[allow(warnings)]
fn create_unguarded<T, const LIMIT: usize>(
    user: User,
    body: web::Json<T>,
) -> impl ::core::future::Future<Output = Result<web::Json<T>, Failure>>
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
    create::<T, LIMIT>(user, body)
}
fn create<T, const LIMIT: usize>(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Post,
        ::idempotent_actix::__private::Json,
    >,
    user: User,
    body: web::Json<T>,
) -> ::idempotent_actix::__private::Response
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
        package : "idempotent-macros", handler : "create", routes : [("POST")], scope :
        [], parameters : [], set :
        [.fingerprint(::idempotent_actix::__private::Fingerprint::Json)],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&user);
    __guard.run(__operation, __scope, create::<T, LIMIT>(user, body))
}
