//! Middleware that refuses keys that would have no effect.

use std::{
    future::{Ready, ready},
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
    idempotency::Idempotency,
    outcome::RequestOutcome,
    problem::ProblemKind,
    spec::{Resource, annotated},
};

/// Middleware that refuses a request whose key would have no effect, because its handler has no
/// `#[idempotent]`.
///
/// Such a request gets 400 (`key_unsupported`), instead of being run without the protection that
/// its client expects. Wrap the whole `App` with it.
///
/// It decides before the request is routed, by the path as it then is: wrap it inside of middleware
/// that changes paths, such as `NormalizePath`.
///
/// # What counts as annotated
/// Annotated handlers are recognized by their method and by the end of the route pattern, because a
/// route attribute does not contain the scopes above it. `POST /admin/payments` without the
/// attribute is therefore taken for an annotated `POST /payments`, and may have a key.
///
/// A handler whose path is empty, such as `#[post("")]` in a `web::scope`, is recognized by the
/// name of its resource, which is the function's unless the route attribute has another:
/// `#[post("", name = "create_payment")]`. Give each such handler a name that no other resource of
/// the application has; if two annotated ones share a name, that is logged. Otherwise keys may be
/// refused for one of the two, or accepted for a resource without the attribute.
///
/// Name handlers that are routed by hand (`method = "…"`) with [`allow`](Self::allow). If
/// actix-web's resource map does not find a path, such as one of the second of two scopes with the
/// same prefix, the path has to end like that of an annotated or allowed handler. A request with a
/// key and without a route therefore gets 400, and not 404, unless its method is safe (RFC 9110
/// §9.2.1).
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
    /// Makes the middleware for an application that uses `idempotency`, for all of its handlers or
    /// for those of an inner scope.
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

    /// Accepts keys for one more operation, named by its method and its full route pattern.
    #[must_use]
    pub fn allow(mut self, method: Method, pattern: impl Into<String>) -> Self {
        Rc::make_mut(&mut self.allowed).push((method, ResourceDef::new(pattern.into())));
        self
    }

    /// Whether a key of this request would have no effect.
    fn is_unsupported(&self, request: &ServiceRequest) -> bool {
        // As the router sees it: with `%61` decoded to `a`.
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
        Some(self.idempotency.render(&problem, RequestOutcome::Refused, request.request()))
    }
}

/// A route of an annotated handler.
#[derive(Debug)]
struct Annotated {
    method: &'static str,
    resource: Resource,
    /// Matches paths that end with the resource's; `None` if that is empty.
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
            // The pattern is that of the scope above, which can be any. If several resources have
            // one pattern, `match_name` is the name of the first, and `url_for` finds this one by
            // name.
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

#[cfg(test)]
mod tests {
    use super::placeholders;

    #[test]
    fn each_dynamic_segment_is_one_placeholder() {
        for (pattern, path) in [
            ("/users", "/users"),
            ("/users/{id}/keys/{key}", "/users/x/keys/x"),
            (r"/users/{id:\d{2,4}}", "/users/x"),
        ] {
            assert_eq!(placeholders(pattern), path);
        }
    }
}
