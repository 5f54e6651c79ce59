//! Refusing keys where they would do nothing.

use std::{
    future::{Ready, ready},
    rc::Rc,
};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    http::Method,
};
use futures_util::future::{Either, LocalBoxFuture};

use crate::{idempotency::Idempotency, outcome::Outcome, private::Registered, problem::Kind};

/// Middleware for the whole `App`: a request that brings a key to an operation without `#[idempotent]` is refused with 400 instead of
/// being run without the protection that its client believes in.
///
/// It decides before the request is routed, so it knows annotated handlers by their method and by the end of the route pattern: the
/// scopes above a route attribute cannot be seen from it. `POST /admin/payments` without the attribute is therefore taken for an
/// annotated `POST /payments`, and keys are let through to it. A handler that is routed by hand (`method = "…"`) has no pattern in its
/// attribute, so name it with [`allow`](Self::allow). Requests that no route takes are left alone.
///
/// ```
/// use actix_web::{App, http::Method};
/// use idempotent_actix::{Idempotency, RejectUnsupportedKeys, store::MemoryStore};
///
/// let idempotency = Idempotency::new(MemoryStore::new());
/// let app = App::new()
///     .app_data(idempotency.clone())
///     .wrap(RejectUnsupportedKeys::new().allow(Method::POST, "/v1/orders"));
/// # let _ = app;
/// ```
#[derive(Clone, Debug, Default)]
pub struct RejectUnsupportedKeys {
    allowed: Rc<Vec<(Method, String)>>,
}

impl RejectUnsupportedKeys {
    /// The middleware.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets keys through to one more operation, named by its method and its full route pattern.
    #[must_use]
    pub fn allow(mut self, method: Method, pattern: impl Into<String>) -> Self {
        Rc::make_mut(&mut self.allowed).push((method, pattern.into()));
        self
    }

    /// Whether a key that came with this request would do nothing.
    fn is_unsupported(&self, request: &HttpRequest) -> bool {
        let Some(pattern) = request.match_pattern() else { return false };
        let annotated = inventory::iter::<Registered>.into_iter().any(|Registered(operation)| {
            operation.methods.contains(&request.method().as_str())
                && !operation.path.is_empty()
                && pattern.ends_with(operation.path)
        });
        !annotated && !self.allowed.iter().any(|(method, path)| method == request.method() && *path == pattern)
    }

    fn check(&self, request: &HttpRequest) -> Option<HttpResponse> {
        let idempotency = Idempotency::of(request)?;
        if !request.headers().contains_key(&idempotency.settings().header) || !self.is_unsupported(request) {
            return None;
        }
        let detail = "this operation does not keep idempotency keys; send it without one, and do not rely on a retry";
        let problem = idempotency.problem(Kind::KeyUnsupported, detail);
        Some(idempotency.render(&problem, Outcome::Refused, request))
    }
}

impl<S, B> Transform<S, ServiceRequest> for RejectUnsupportedKeys
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Rejecting<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Rejecting { service, rule: self.clone() }))
    }
}

/// The service that [`RejectUnsupportedKeys`] makes.
#[derive(Debug)]
pub struct Rejecting<S> {
    service: S,
    rule: RejectUnsupportedKeys,
}

impl<S, B> Service<ServiceRequest> for Rejecting<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Either<Ready<Result<Self::Response, Error>>, LocalBoxFuture<'static, Result<Self::Response, Error>>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        if let Some(response) = self.rule.check(request.request()) {
            return Either::Left(ready(Ok(request.into_response(response).map_into_right_body())));
        }
        let answer = self.service.call(request);
        Either::Right(Box::pin(async move { answer.await.map(ServiceResponse::map_into_left_body) }))
    }
}
