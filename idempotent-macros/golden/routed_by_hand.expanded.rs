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
        package : "idempotent-macros", handler : "delete", routes : [("DELETE")], scope :
        [Parameter(| __request |
        ::idempotent_actix::__private::scope_of_request(__request, | session : Session |
        ::idempotent_actix::__private::scope_of(& session))) of Session], parameters :
        [], set : [.record(::idempotent_actix::__private::rules::RecordRule::All)],
    };
    let __scope = ::idempotent_actix::__private::scope_of(&session);
    __guard.run(__operation, __scope, r#delete(session))
}
