//! What identifies the operation of a keyed request: its scope, its digest and its record id.

use std::borrow::Cow;

use actix_web::{Error, HttpResponse};
use idempotent_core::{RecordId, RequestDigest, ScopeId, ShortText, runtime::Subject};
use idempotent_http::digest::BodyForm;

use super::{KeyedRun, transaction::slot_of};
use crate::{
    declaration::{ClaimMode, markers::HeadForm, rules::InFlightRule},
    lookup,
    operation_name::name_of,
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
        let digest = match (content, self.operation.fingerprint) {
            (RequestContent::Digest(digest), _) => digest,
            (RequestContent::Body(body), BodyForm::JsonPart(part)) => {
                HeadForm::of(self.operation).digest_of_json(&self.request, &body, Some(part))
            }
            // The fingerprint function has panicked.
            (RequestContent::Body(_), _) => return Err(misconfigured()),
        };
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
        let name = self.idempotency.settings().spoken.record_name(&name, self.request.path());
        let id = RecordId::new(namespace, scope, &name, self.context.sent_key());
        let mut subject = Subject::new(id);
        subject.operation = self.shown_name();
        subject
    }

    /// The full name of the operation.
    fn name(&self) -> Cow<'_, str> {
        match &self.route {
            Some(route) => Cow::Borrowed(&route.name),
            None => [self.request.method().as_str(), " ", self.request.path()].concat().into(),
        }
    }

    /// The name of the operation that records and logs show: without the path of the request, which
    /// may be personal, and which the log of operators' decisions would keep after an erasure.
    fn shown_name(&self) -> ShortText {
        match &self.route {
            Some(route) => route.shown.clone(),
            None => {
                let name = name_of(self.operation, self.request.method(), None);
                ShortText::truncated(&name)
            }
        }
    }

    /// The location at which the client can poll for the end of the operation, if `in_flight` says
    /// so; an error if the application has no lookup.
    pub(super) fn lookup_location(&self) -> Option<Result<String, NoLookup>> {
        (self.operation.in_flight == Some(InFlightRule::Poll)).then(|| {
            let (name, key) = (self.name(), self.context.sent_key());
            lookup::location(&self.request, &self.idempotency, &name, key).ok_or(NoLookup)
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
