//! Refusing keys where they would do nothing.

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
    private::{Registered, Resource},
    problem::ProblemKind,
};

/// Middleware for the whole `App`: a request that brings a key to an operation without `#[idempotent]` is refused with 400, instead of
/// being run without the protection that its client expects.
///
/// It decides before the request is routed, by the path as it then is: wrap it inside of middleware that changes paths, such as
/// `NormalizePath`. It knows annotated handlers by their method and by the end of the route pattern, because the scopes above a route
/// attribute cannot be seen from it. `POST /admin/payments` without the attribute is therefore taken for an annotated `POST /payments`, and
/// keys are let through to it.
///
/// A handler whose path is empty, such as `#[post("")]` in a `web::scope`, is known by the name of its resource, which is the function's
/// unless the route attribute has another: `#[post("", name = "create_payment")]`. Give each such handler a name that no other resource of
/// the application has; the log says where two annotated ones share a name. Otherwise keys may be refused for one of the two, or let through
/// to a resource without the attribute.
///
/// Handlers that are routed by hand (`method = "…"`) are named with [`allow`](Self::allow). A path that actix-web's resource map does not
/// find, such as one of the second of two scopes with the same prefix, is let through only if it ends like that of an annotated or
/// allowed handler. So a request with a key that no route takes gets 400, and not 404, unless its method is safe (RFC 9110 §9.2.1).
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
    /// The middleware for applications that use `idempotency`, for all of their handlers or for those of an inner scope.
    #[must_use]
    pub fn new(idempotency: &Idempotency) -> Self {
        let annotated = Annotated::all();
        warn_of_namesakes(&annotated);
        Self { idempotency: idempotency.clone(), annotated: Rc::new(annotated), allowed: Rc::default() }
    }

    /// Lets keys through to one more operation, named by its method and its full route pattern.
    #[must_use]
    pub fn allow(mut self, method: Method, pattern: impl Into<String>) -> Self {
        Rc::make_mut(&mut self.allowed).push((method, ResourceDef::new(pattern.into())));
        self
    }

    /// Whether a key that came with this request would have no effect.
    fn is_unsupported(&self, request: &ServiceRequest) -> bool {
        // As the router sees it: with `%61` decoded to `a`.
        let path = request.match_info().as_str();
        let method = request.method();
        let mut annotated = self.annotated.iter().filter(|annotated| annotated.method == method.as_str());
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
        if !request.headers().contains_key(&self.idempotency.settings().header) || !self.is_unsupported(request) {
            return None;
        }
        let detail = "this operation does not keep idempotency keys; send it without one, and do not rely on a retry";
        let problem = self.idempotency.problem(ProblemKind::KeyUnsupported, detail);
        Some(self.idempotency.render(&problem, RequestOutcome::Refused, request.request()))
    }
}

/// A route of an annotated handler.
#[derive(Debug)]
struct Annotated {
    method: &'static str,
    resource: Resource,
    /// Paths that end with the resource's; `None` where that is empty.
    ending: Option<ResourceDef>,
}

impl Annotated {
    fn all() -> Vec<Self> {
        let routes = inventory::iter::<Registered>.into_iter().flat_map(|registered| registered.0.routes);
        let annotated = routes.filter_map(|route| {
            let (method, resource) = (route.method, route.resource?);
            let separator = if resource.path.starts_with('/') { "" } else { "/" };
            let ending = || ResourceDef::new(format!("{{scopes:.*}}{separator}{}", resource.path));
            Some(Self { method, resource, ending: (!resource.path.is_empty()).then(ending) })
        });
        annotated.collect()
    }

    /// Whether a path of scopes that are not known ends with this resource.
    fn ends(&self, path: &str) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.is_match(path))
    }
}

fn warn_of_namesakes(annotated: &[Annotated]) {
    let empty = |annotated: &&Annotated| annotated.resource.path.is_empty();
    for (index, one) in annotated.iter().enumerate().filter(|(_, annotated)| empty(annotated)) {
        let mut rest = annotated.iter().skip(index.saturating_add(1)).filter(empty);
        if rest.any(|other| other.resource.name == one.resource.name && other.method == one.method) {
            tracing::error!(
                name = one.resource.name,
                "annotated handlers with an empty path share the name of their resource, so keys may be refused for some of them; \
                 name each in its route attribute, such as `#[post(\"\", name = \"create_payment\")]`"
            );
        }
    }
}

impl Resource {
    /// Whether a request with this full pattern may be for this resource.
    fn fits(&self, pattern: &str, path: &str, request: &ServiceRequest) -> bool {
        if self.path.is_empty() {
            // The pattern is that of the scope, which every pattern could be. Where several resources have one pattern, `match_name` is the
            // name of the first, and `url_for` finds this one by its own name.
            return request.resource_map().match_name(path) == Some(self.name)
                || self.url(request.request()) == Some(placeholders(pattern));
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
    type Transform = RejectUnsupportedKeysService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(RejectUnsupportedKeysService { service, rule: self.clone() }))
    }
}

/// The service that [`RejectUnsupportedKeys`] makes.
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
    type Future = Either<Ready<Result<Self::Response, Error>>, LocalBoxFuture<'static, Result<Self::Response, Error>>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        if let Some(response) = self.rule.check(&request) {
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
