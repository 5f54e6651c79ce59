fn r#delete(
    __guard: ::idempotent_actix::__private::Guard<
        ::idempotent_actix::__private::Required,
        ::idempotent_actix::__private::Delete,
        ::idempotent_actix::__private::Raw,
    >,
    session: Session,
) -> ::idempotent_actix::__private::Answer {
    async fn r#delete(session: Session) {}
    let __operation = ::idempotent_actix::__private::operation! {
        name : "", handler : "delete", routes : [("DELETE")], ttl : 86400000u64, lease :
        30000u64, wait : 0u64, timeout : 0u64, key : Required, fingerprint : Raw, record
        : All, abandoned : Retry, claim : Lease,
    };
    let __scope = ::idempotent_actix::__private::scope_of(&session);
    __guard.run(__operation, __scope, r#delete(session))
}
