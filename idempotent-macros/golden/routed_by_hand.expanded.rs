/// The handler `r#delete` without its idempotency guard, for unit tests.
#[cfg(test)]
#[allow(warnings)]
fn delete_unguarded(session: Session) -> impl ::core::future::Future<Output = ()> {
    async fn r#delete(session: Session) {}
    r#delete(session)
}
fn r#delete(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Delete,
        ::idempotent_actix::__private::Raw,
    >,
    session: Session,
) -> ::idempotent_actix::__private::Response {
    async fn r#delete(session: Session) {}
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "delete", routes : [("DELETE")], durations : [], rules :
        [record RecordRule All], key : Required, fingerprint : Raw, claim : Lease, scope
        : [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | session : Session |
        ::idempotent_actix::__private::scope_of(& session))) of Session], extractors :
        [],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&session);
    __guard.run(__operation, __scope, r#delete(session))
}
