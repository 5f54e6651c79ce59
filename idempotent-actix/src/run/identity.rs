//! What identifies the operation of a keyed request: its scope, its digest and its record id.

use std::borrow::Cow;

use actix_web::{
    Error, HttpRequest, HttpResponse,
    dev::{Path, Url},
};
use idempotent_core::{RecordId, RequestDigest, ScopeId, runtime::Subject};

use super::{KeyedRun, transaction::slot_of};
use crate::{
    declaration::{ClaimMode, Declaration, rules::InFlightRule},
    lookup,
    outcome::RequestOutcome,
    problem::ProblemKind,
    request::RequestContent,
    served,
};

/// The application has no resource for lookups.
pub(super) struct NoLookup;

impl KeyedRun {
    /// The scope and the digest of the request, unless it is refused.
    #[expect(clippy::result_large_err, reason = "the response is sent at once")]
    pub(super) fn identify(
        &self,
        scope: Result<ScopeId, Option<Error>>,
        content: RequestContent,
    ) -> Result<(ScopeId, RequestDigest), HttpResponse> {
        let misconfigured = || self.refusals().refuse_unrun(ProblemKind::Misconfigured);
        let scope = scope.map_err(|error| self.without_principal(error))?;
        if let Some(Err(NoLookup)) = self.lookup_location() {
            tracing::error!(
                handler = self.operation.handler,
                "a handler has `in_flight = \"poll\"`, and the application has no \
                 `Idempotency::lookup_resource` resource; its request was refused"
            );
            return Err(misconfigured());
        }
        let RequestContent::Digest(digest) = content else { return Err(misconfigured()) };
        if self.operation.claim == ClaimMode::Transaction && slot_of(&self.request).is_none() {
            tracing::error!(
                handler = self.operation.handler,
                "a handler with `claim = \"transaction\"` takes no `idempotent_actix::Tx`, but \
                 another type of that name; its request was refused"
            );
            return Err(misconfigured());
        }
        Ok((scope, digest))
    }

    /// The record that the request claims, and what it shows about the operation.
    pub(super) fn subject(&self, scope: &ScopeId) -> Subject {
        let (namespace, name) = (self.idempotency.namespace_of(self.operation), self.name());
        served::note(&self.request, &self.idempotency, self.operation, &name);
        Subject::new(RecordId::new(namespace, scope, &name, self.context.sent_key()))
            .with_operation(&name)
    }

    /// The full name of the operation.
    fn name(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => [self.request.method().as_str(), " ", self.request.path()].concat().into(),
        }
    }

    /// The location at which the client can poll for the end of the operation, if `in_flight` says
    /// so; an error if the application has no lookup.
    pub(super) fn lookup_location(&self) -> Option<Result<String, NoLookup>> {
        (self.operation.in_flight == Some(InFlightRule::Poll)).then(|| {
            lookup::location(&self.request, &self.name(), self.context.sent_key()).ok_or(NoLookup)
        })
    }

    /// The response to a request without a principal: the scope's own, or 401.
    fn without_principal(&self, error: Option<Error>) -> HttpResponse {
        match error {
            Some(error) => RequestOutcome::Refused.attach(HttpResponse::from_error(error)),
            None => self.refusals().refuse(ProblemKind::ScopeMissing, RequestOutcome::Refused),
        }
    }
}

/// The full name of an operation; `None` if it contains the path of the request.
///
/// Of several patterns of one resource only the first is known, so the path of a request that does
/// not fit it stands for its pattern.
pub(crate) fn name_of(
    operation: &'static Declaration,
    request: &HttpRequest,
) -> Option<Cow<'static, str>> {
    if !operation.name.is_empty() {
        return Some(operation.name.into());
    }
    let pattern = request.match_pattern();
    let route = match &pattern {
        Some(pattern) if !is_pattern_of(pattern, request.match_info()) => return None,
        Some(pattern) => pattern.as_str(),
        // A default service matches no pattern; the handler's name separates it from others.
        None => operation.handler,
    };
    Some([request.method().as_str(), " ", route].concat().into())
}

/// Whether a path consists of the literal parts of the pattern and the values of its dynamic
/// segments.
fn is_pattern_of(pattern: &str, path: &Path<Url>) -> bool {
    let (mut rest, mut pattern) = (path.as_str(), pattern);
    for (_, value) in path.iter() {
        let Some((literal, segment)) = pattern.split_once('{') else { return false };
        let mut depth = 1u32;
        let end = segment.char_indices().find_map(|(at, character)| {
            match character {
                '{' => depth = depth.saturating_add(1),
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0).then_some(at)
        });
        let after = end.and_then(|end| segment.get(end..)).and_then(|end| end.strip_prefix('}'));
        let left = rest.strip_prefix(literal).and_then(|rest| rest.strip_prefix(value));
        let (Some(after), Some(left)) = (after, left) else { return false };
        // A tail segment is `{name}*`.
        (pattern, rest) = (after.strip_prefix('*').unwrap_or(after), left);
    }
    pattern == rest
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn fits(pattern: &str, path: &str, values: &[&'static str]) -> bool {
        let request = TestRequest::with_uri(path);
        let request = values.iter().fold(request, |request, value| request.param("name", *value));
        is_pattern_of(pattern, request.to_http_request().match_info())
    }

    #[test]
    fn a_path_fits_the_pattern_that_has_matched_it() {
        assert!(fits("/orders", "/orders", &[]));
        assert!(fits("/{a}/b-{c:[0-9]{1,2}}", "/x/b-7", &["x", "7"]));
        assert!(fits("/files/{tail}*", "/files/a/b", &["a/b"]));
        assert!(!fits("/charges/{id}", "/refunds/7", &["7"]));
        assert!(!fits("/orders", "/orders/", &[]));
        assert!(!fits("/orders/{id}", "/orders/7/x", &["7"]));
    }
}
