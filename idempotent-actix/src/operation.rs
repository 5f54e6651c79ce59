//! The operation that is running, for its handler.

use std::{
    cell::{Cell, OnceCell},
    future::{Ready, ready},
    rc::Rc,
};

use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, dev::Payload, error::InternalError};
use idempotent_core::{DerivedKey, Key, RecordId};

use crate::{
    idempotency::Idempotency, in_flight::PermitHolder, outcome::RequestOutcome,
    problem::ProblemKind,
};

/// The operation that a guarded handler runs for, as an extractor.
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
///     // The bank gets the same key from each attempt, so it charges once.
///     bank.charge(operation.derive_key("charge").to_string()).await;
///     HttpResponse::Created().finish()
/// }
/// ```
///
/// A handler whose key is optional takes `Option<Operation>`. Without a key there is no operation,
/// and `Operation` refuses the request with 400 (`key_missing`).
#[derive(Clone, Debug)]
pub struct Operation {
    context: Rc<OperationContext>,
}

/// What is known of an operation. The key is known from the start; the claim comes after the
/// extractors and before the handler.
#[derive(Debug)]
pub(crate) struct OperationContext {
    pub(crate) key: Key,
    claim: OnceCell<(RecordId, u32)>,
    /// Whether the client has disconnected and the operation continues in a separate task.
    pub(crate) detached: Cell<bool>,
    pub(crate) permit: PermitHolder,
}

impl OperationContext {
    pub(crate) fn new(key: Key) -> Rc<Self> {
        let (claim, detached, permit) =
            (OnceCell::new(), Cell::new(false), PermitHolder::default());
        Rc::new(Self { key, claim, detached, permit })
    }

    /// Sets the record and the attempt's number. A request is claimed once, so it is not set yet.
    pub(crate) fn set_claim(&self, id: RecordId, attempt: u32) {
        let _ = self.claim.set((id, attempt));
    }

    /// The record; `None` before the claim.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn record_id(&self) -> Option<&RecordId> {
        self.claim.get().map(|(id, _)| id)
    }
}

impl Operation {
    /// Returns the key that the client sent.
    ///
    /// It may be a secret: keep it out of logs, and send [`derive_key`](Self::derive_key) to other
    /// services.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.context.key
    }

    /// Returns the id of this operation's record. It is the same for all attempts.
    ///
    /// # Panics
    /// In an extractor: the operation is claimed after all extractors.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.claim().0
    }

    /// Returns the number of this attempt, from 1. From 2 on, an earlier attempt was abandoned and
    /// may have done some or all of its work.
    ///
    /// # Panics
    /// In an extractor: the operation is claimed after all extractors.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.claim().1
    }

    /// Returns whether an earlier attempt was abandoned: [`attempt`](Self::attempt) is above 1.
    ///
    /// # Panics
    /// In an extractor: the operation is claimed after all extractors.
    #[must_use]
    pub fn recovering(&self) -> bool {
        self.attempt() > 1
    }

    /// Derives an idempotency key for a call to another service.
    ///
    /// The key is the same for all attempts, also after a restart or a deployment, and differs for
    /// each label. It is a UUID (version 8): a hash of the record's id and the label, which does
    /// not reveal the client's key. Nor does it depend on the request's body or on time: a client
    /// that sends another body after a response that was not recorded, or the same key after the
    /// ttl, makes the handler derive the same key again.
    ///
    /// # Panics
    /// In an extractor: the operation is claimed after all extractors.
    #[must_use]
    pub fn derive_key(&self, label: &str) -> DerivedKey {
        self.id().derive_key(label)
    }

    /// Panics before the claim, because any id made up there would be shared by all requests.
    #[expect(clippy::expect_used, reason = "a shared derived key is worse than a failed request")]
    fn claim(&self) -> &(RecordId, u32) {
        self.context.claim.get().expect(
            "an `Operation` was used in an extractor; it is claimed after all extractors, so use \
             it in the handler",
        )
    }
}

impl FromRequest for Operation {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        if let Some(context) = request.extensions().get::<Rc<OperationContext>>() {
            return ready(Ok(Self { context: context.clone() }));
        }
        let idempotency = match Idempotency::of(request) {
            Ok(idempotency) => idempotency,
            Err(error) => return ready(Err(error)),
        };
        let kind = ProblemKind::KeyMissing;
        let problem = idempotency.problem(kind, kind.advice());
        let response = idempotency.render(&problem, RequestOutcome::Refused, request);
        ready(Err(InternalError::from_response("an `Operation` without a key", response).into()))
    }
}
