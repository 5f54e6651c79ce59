//! Middleware that refuses keys that would have no effect.

use std::{
    future::{Ready, ready},
    iter::repeat_n,
    rc::Rc,
};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{ResourceDef, Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    http::Method,
};
use futures_util::future::{Either, LocalBoxFuture};

use crate::{
    declaration::{Resource, annotated},
    idempotency::Idempotency,
    outcome::RequestOutcome,
    problem::ProblemKind,
    resources::{path_of, placeholders},
};

/// Middleware that refuses requests whose key would have no effect, because their handler has no
/// `#[idempotent]`.
///
/// Such a request gets 400 (`key_unsupported`) instead of running without the protection that its
/// client expects. Wrap the whole `App` with this middleware.
///
/// A key is a header of the name that [`header`](crate::IdempotencyBuilder::header) sets. A handler
/// with `key_from` is annotated too: its requests pass, with such a header or without.
///
/// It decides before the request is routed, by the path that the request has at that point. Place
/// it inside of middleware that changes paths, such as `NormalizePath`.
///
/// # How annotated handlers are recognized
/// A handler with a route attribute is recognized by its method and by the end of its route
/// pattern, because the route attribute does not contain the scopes above it.
/// `POST /admin/payments` without `#[idempotent]` is therefore mistaken for an annotated
/// `POST /payments`, and its requests may have a key.
///
/// A handler whose path is empty, such as `#[post("")]` in a `web::scope`, is recognized by the
/// name of its resource. That is the name of the function, unless the route attribute sets another:
/// `#[post("", name = "create_payment")]`. Give each such handler a name that no other resource of
/// the application has. If two resources share a name, keys may be refused for an annotated
/// handler, or accepted for a handler without `#[idempotent]`. Two annotated handlers that share a
/// name are logged as an error.
///
/// A handler without a route attribute (`method = "…"`) is not recognized: add it with
/// [`allow`](Self::allow).
///
/// # Requests without a route
/// If actix-web's resource map does not find a path, the path has to end like that of an annotated
/// handler or match that of an allowed one. The resource map does not find, for example, the paths
/// of the second of two scopes with the same prefix. A request with a key and without a route
/// therefore gets 400 instead of 404, unless its method is safe (RFC 9110 §9.2.1).
///
/// # Examples
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
    annotated: Rc<Vec<Annotated>>,
    allowed: Rc<Vec<(Method, ResourceDef)>>,
}

impl RejectUnsupportedKeys {
    /// Creates the middleware for an application, or for an inner scope, whose handlers use
    /// `idempotency`.
    #[must_use]
    pub fn new(idempotency: &Idempotency) -> Self {
        let annotated = Annotated::all();
        log_shared_names(&annotated);
        Self {
            idempotency: idempotency.clone(),
            annotated: Rc::new(annotated),
            allowed: Rc::default(),
        }
    }

    /// Accepts keys for one more operation: a method and a full route pattern, such as
    /// `/v1/orders/{id}`.
    #[must_use]
    pub fn allow(mut self, method: Method, pattern: impl Into<String>) -> Self {
        Rc::make_mut(&mut self.allowed).push((method, ResourceDef::new(pattern.into())));
        self
    }

    /// Whether a key of this request would have no effect.
    fn is_unsupported(&self, request: &ServiceRequest) -> bool {
        // As the router sees the path: with `%61` decoded to `a`.
        let path = request.match_info().as_str();
        let method = request.method();
        let mut annotated =
            self.annotated.iter().filter(|annotated| annotated.method == method.as_str());
        let mut allowed = self.allowed.iter().filter(|(allowed, _)| allowed == method);
        let supported = match request.resource_map().match_pattern(path) {
            Some(pattern) => {
                annotated.any(|annotated| annotated.resource.fits(&pattern, path, request))
                    || allowed.any(|(_, allowed)| allowed.pattern() == Some(&*pattern))
            }
            None => {
                method.is_safe()
                    || annotated.any(|annotated| annotated.ends(path))
                    || allowed.any(|(_, allowed)| allowed.is_match(path))
            }
        };
        !supported
    }

    fn check(&self, request: &ServiceRequest) -> Option<HttpResponse> {
        if !request.headers().contains_key(&self.idempotency.settings().header)
            || !self.is_unsupported(request)
        {
            return None;
        }
        let kind = ProblemKind::KeyUnsupported;
        let problem = self.idempotency.problem(kind, kind.advice());
        self.idempotency.count_refused(request.request(), RequestOutcome::Refused);
        Some(self.idempotency.render(&problem, RequestOutcome::Refused, request.request()))
    }
}

/// A route of an annotated handler.
#[derive(Debug)]
struct Annotated {
    method: &'static str,
    resource: Resource,
    /// Matches paths that end with the path of the resource; `None` if that is empty.
    ending: Option<ResourceDef>,
}

impl Annotated {
    fn all() -> Vec<Self> {
        let routes = annotated().flat_map(|operation| operation.routes);
        let resources = routes.filter_map(|route| {
            let (method, resource) = (route.method, route.resource?);
            let separator = if resource.path.starts_with('/') { "" } else { "/" };
            let ending = || ResourceDef::new(format!("{{scopes:.*}}{separator}{}", resource.path));
            Some(Self { method, resource, ending: (!resource.path.is_empty()).then(ending) })
        });
        resources.collect()
    }

    /// Whether a path ends with this resource, whatever the scopes above it.
    fn ends(&self, path: &str) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.is_match(path))
    }
}

fn log_shared_names(annotated: &[Annotated]) {
    let empty = |annotated: &&Annotated| annotated.resource.path.is_empty();
    for (index, one) in annotated.iter().enumerate().filter(|(_, annotated)| empty(annotated)) {
        let mut rest = annotated.iter().skip(index.saturating_add(1)).filter(empty);
        if rest.any(|other| other.resource.name == one.resource.name && other.method == one.method)
        {
            tracing::error!(
                name = one.resource.name,
                "annotated handlers with an empty path share a resource name, so keys may be \
                 refused for some of them; name each in its route attribute, such as \
                 `#[post(\"\", name = \"create_payment\")]`"
            );
        }
    }
}

impl Resource {
    /// Whether a request with this full pattern may be for this resource.
    fn fits(&self, pattern: &str, path: &str, request: &ServiceRequest) -> bool {
        if self.path.is_empty() {
            // The pattern is that of the enclosing scope, which can be any. If several resources
            // have the same pattern, `match_name` returns the name of the first, and `url_for`
            // finds this one by its name.
            return request.resource_map().match_name(path) == Some(self.name)
                || self.url(request.request()) == Some(placeholders(pattern));
        }
        // actix-web adds a slash in front of a path that has none.
        pattern
            .strip_suffix(self.path)
            .is_some_and(|scopes| self.path.starts_with('/') || scopes.ends_with('/'))
    }

    /// The path of the resource of this name, with placeholders for its dynamic segments.
    fn url(&self, request: &HttpRequest) -> Option<String> {
        path_of(request, self.name, &mut repeat_n("x".to_owned(), 64))
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
    type Transform = RejectUnsupportedKeysService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(RejectUnsupportedKeysService { service, rule: self.clone() }))
    }
}

/// The service of [`RejectUnsupportedKeys`].
#[derive(Debug)]
pub struct RejectUnsupportedKeysService<S> {
    service: S,
    rule: RejectUnsupportedKeys,
}

impl<S, B> Service<ServiceRequest> for RejectUnsupportedKeysService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Either<
        Ready<Result<Self::Response, Error>>,
        LocalBoxFuture<'static, Result<Self::Response, Error>>,
    >;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        if let Some(response) = self.rule.check(&request) {
            return Either::Left(ready(Ok(request.into_response(response).map_into_right_body())));
        }
        let response = self.service.call(request);
        Either::Right(Box::pin(
            async move { response.await.map(ServiceResponse::map_into_left_body) },
        ))
    }
}
