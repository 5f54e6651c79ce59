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

use crate::{
    idempotency::Idempotency,
    outcome::Outcome,
    private::{Registered, Resource},
    problem::Kind,
};

/// Middleware for the whole `App`: a request that brings a key to an operation without `#[idempotent]` is refused with 400, instead of
/// being run without the protection that its client expects.
///
/// It decides before the request is routed, so it knows annotated handlers by their method and by the end of the route pattern: the
/// scopes above a route attribute cannot be seen from it. `POST /admin/payments` without the attribute is therefore taken for an
/// annotated `POST /payments`, and keys are let through to it. A handler whose path is empty, such as `#[post("")]` in a
/// `web::scope`, is known by the name of its resource instead; mounted in several scopes, it is found in one of them. That handler,
/// and one that is routed by hand (`method = "…"`), are named with [`allow`](Self::allow). Requests that no route takes are left alone.
///
/// ```
/// use actix_web::{App, http::Method};
/// use idempotent_actix::{Idempotency, RejectUnsupportedKeys, store::MemoryStore};
///
/// let idempotency = Idempotency::new(MemoryStore::new());
/// let app = App::new()
///     .app_data(idempotency.clone())
///     .wrap(RejectUnsupportedKeys::new(&idempotency).allow(Method::POST, "/v1/orders"));
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
pub struct RejectUnsupportedKeys {
    idempotency: Idempotency,
    allowed: Rc<Vec<(Method, String)>>,
}

impl RejectUnsupportedKeys {
    /// The middleware for applications that use `idempotency`, for all of their handlers or for those of an inner scope.
    #[must_use]
    pub fn new(idempotency: &Idempotency) -> Self {
        Self { idempotency: idempotency.clone(), allowed: Rc::default() }
    }

    /// Lets keys through to one more operation, named by its method and its full route pattern.
    #[must_use]
    pub fn allow(mut self, method: Method, pattern: impl Into<String>) -> Self {
        Rc::make_mut(&mut self.allowed).push((method, pattern.into()));
        self
    }

    /// Whether a key that came with this request would have no effect.
    fn is_unsupported(&self, request: &HttpRequest) -> bool {
        let Some(pattern) = request.match_pattern() else { return false };
        let annotated = inventory::iter::<Registered>.into_iter().flat_map(|registered| registered.0.routes);
        let mut annotated = annotated.filter(|route| route.method == request.method().as_str());
        !annotated.any(|route| route.resource.is_some_and(|resource| resource.fits(&pattern, request)))
            && !self.allowed.iter().any(|(method, path)| method == request.method() && *path == pattern)
    }

    fn check(&self, request: &HttpRequest) -> Option<HttpResponse> {
        if !request.headers().contains_key(&self.idempotency.settings().header) || !self.is_unsupported(request) {
            return None;
        }
        let detail = "this operation does not keep idempotency keys; send it without one, and do not rely on a retry";
        let problem = self.idempotency.problem(Kind::KeyUnsupported, detail);
        Some(self.idempotency.render(&problem, Outcome::Refused, request))
    }
}

impl Resource {
    /// Whether a request with this full pattern may be for this resource.
    fn fits(&self, pattern: &str, request: &HttpRequest) -> bool {
        if self.path.is_empty() {
            // The pattern ends with anything: it is that of the scope. Where several resources have one pattern, `match_name` is the name
            // of the first, and `url_for` finds this one by its own name.
            return request.match_name() == Some(self.name) || self.url(request) == Some(placeholders(pattern));
        }
        // actix-web adds a slash in front of a path that has none.
        pattern.strip_suffix(self.path).is_some_and(|scopes| self.path.starts_with('/') || scopes.ends_with('/'))
    }

    /// The path of the resource of this name, with placeholders for its dynamic segments.
    fn url(&self, request: &HttpRequest) -> Option<String> {
        let url = request.url_for(self.name, std::iter::repeat_n("x", 64)).ok()?;
        Some(url.path().to_owned())
    }
}

/// A pattern with `x` for each dynamic segment.
fn placeholders(pattern: &str) -> String {
    let (mut path, mut depth) = (String::new(), 0u32);
    for character in pattern.chars() {
        match character {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    path.push('x');
                }
            }
            character if depth == 0 => path.push(character),
            _ => {}
        }
    }
    path
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

#[cfg(test)]
mod tests {
    use super::placeholders;

    #[test]
    fn each_dynamic_segment_is_one_placeholder() {
        for (pattern, path) in
            [("/users", "/users"), ("/users/{id}/keys/{key}", "/users/x/keys/x"), (r"/users/{id:\d{2,4}}", "/users/x")]
        {
            assert_eq!(placeholders(pattern), path);
        }
    }
}
