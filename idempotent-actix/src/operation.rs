//! The operation that is running, for its handler.

use std::{
    cell::{Cell, OnceCell},
    future::{Ready, ready},
    rc::Rc,
};

use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, dev::Payload, error::InternalError};
use idempotent_core::{DerivedKey, Key, RecordId};

use crate::{
    idempotency::Idempotency,
    in_flight::Counted,
    outcome::RequestOutcome,
    problem::{self, Problem, ProblemKind},
};

/// The operation that a guarded handler is part of, as an extractor.
///
/// ```
/// use actix_web::{HttpResponse, post};
/// use idempotent_actix::{Operation, idempotent, scope};
///
/// # struct Bank;
/// # impl Bank { async fn charge(&self, _key: String) {} }
/// # let bank = Bank;
/// #[idempotent(scope = "scope::bearer_token")]
/// #[post("/v1/payments")]
/// async fn create_payment(operation: Operation) -> HttpResponse {
///     # let bank = Bank;
///     // However often this runs, the bank sees one key and charges once.
///     bank.charge(operation.derive_key("charge").to_string()).await;
///     HttpResponse::Created().finish()
/// }
/// ```
///
/// A handler whose key is optional takes `Option<Operation>`; without a key there is no operation, and a bare `Operation` is
/// refused with 400.
#[derive(Clone, Debug)]
pub struct Operation {
    slot: Rc<Slot>,
}

/// What is known of an operation; the rest comes with the claim, after the extractors and before the handler.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) claimed: OnceCell<(RecordId, u32)>,
    /// Whether the client has disconnected and the operation goes on in a task of its own.
    pub(crate) detached: Cell<bool>,
    pub(crate) counted: Counted,
}

impl Operation {
    /// The key that the client sent. It may be a secret: keep it out of logs, and send [`derive_key`](Self::derive_key) to others.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.slot.key
    }

    /// The record of this operation: the same over retries and takeovers.
    ///
    /// # Panics
    /// In an extractor: the operation is claimed after all extractors, and has no id before. So do the methods below.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.claimed().0
    }

    /// 1 for the first attempt; from 2 on, an earlier attempt was abandoned and may have done some or all of its work.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.claimed().1
    }

    /// An id that is made up before the claim would be one that all requests share, and so would be the keys derived from it.
    #[expect(clippy::expect_used, reason = "a wrong key for a bank is worse than a request that breaks down")]
    fn claimed(&self) -> &(RecordId, u32) {
        self.slot
            .claimed
            .get()
            .expect("an `Operation` is used in an extractor; it is claimed after them, use it in the handler")
    }

    /// Whether an earlier attempt was abandoned.
    #[must_use]
    pub fn recovering(&self) -> bool {
        self.attempt() > 1
    }

    /// An idempotency key for a call to another service: the same over retries, deploys and takeovers, and another for each label.
    ///
    /// It is a hash of the record's id and the label, as a UUID (version 8); it does not give the client's key away. It does not
    /// depend on the request's body or on time: a client that sends another body after an answer that was not kept, or the same key
    /// after the ttl, gives the other service the same key again.
    #[must_use]
    pub fn derive_key(&self, label: &str) -> DerivedKey {
        self.id().derive_key(label)
    }
}

impl FromRequest for Operation {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        if let Some(slot) = request.extensions().get::<Rc<Slot>>() {
            return ready(Ok(Self { slot: slot.clone() }));
        }
        let idempotency = match Idempotency::of(request) {
            Ok(idempotency) => idempotency,
            Err(error) => return ready(Err(error)),
        };
        let problem = idempotency.problem(ProblemKind::KeyMissing, "this operation cannot be run without a key");
        let response = idempotency.render(&problem, RequestOutcome::Refused, request);
        ready(Err(InternalError::from_response("an Operation without a key", response).into()))
    }
}

/// Marks a request that the application's set-up lets no handler run for. The log says why.
pub(crate) struct Misconfigured;

/// What a client gets where the application is misconfigured. The log says why: once for each request, though several of the handler's
/// extractors may find the same. The handler does not run, even where it takes the extractor that found it as an `Option`.
pub(crate) fn misconfigured(request: &HttpRequest, why: &'static str) -> Error {
    if request.extensions_mut().insert(Misconfigured).is_none() {
        tracing::error!(path = request.path(), "{why}");
    }
    let problem = Problem::new(ProblemKind::Misconfigured, ProblemKind::Misconfigured.advice(), "/idempotency#");
    let mut response = problem::json(&problem, request);
    response.extensions_mut().insert(RequestOutcome::Unavailable);
    InternalError::from_response(why, response).into()
}
