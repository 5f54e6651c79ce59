//! The operation that is running, for its handler.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

use idempotent_core::{DerivedKey, Key, RecordId};

use crate::in_flight::PermitHolder;

pub(crate) mod extraction;

/// An extractor of the current operation: its key, the id of its record, the number of the attempt,
/// and derived keys for calls to other services.
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
/// Without a key there is no operation. With `key = "optional"`, take an `Option<Operation>`; a
/// plain `Operation` refuses a request without a key with 400 (`key_missing`).
#[derive(Clone, Debug)]
pub struct Operation {
    context: Rc<OperationContext>,
}

/// The data of an operation. The key is known from the start; the claim follows after the
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

    /// Sets the record and the number of the attempt. A request is claimed once, so they are not
    /// set yet.
    pub(crate) fn set_claim(&self, id: RecordId, attempt: u32) {
        let _ = self.claim.set((id, attempt));
    }

    /// The id of the record; `None` before the claim.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn record_id(&self) -> Option<&RecordId> {
        self.claim.get().map(|(id, _)| id)
    }
}

impl Operation {
    /// Returns the key that the client sent.
    ///
    /// The key may be a secret: log [`id`](Self::id) instead, and send
    /// [`derive_key`](Self::derive_key) to other services.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.context.key
    }

    /// Returns the id of this operation's record. It is the same for all attempts.
    ///
    /// # Panics
    /// Panics in an extractor, because the operation is claimed after all extractors.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.claim().0
    }

    /// Returns the number of this attempt: 1 for the first. From 2 on, an earlier attempt was
    /// abandoned and may have done some or all of its work.
    ///
    /// It is 1 for a request that runs unguarded because the store failed
    /// ([`StoreFailurePolicy::RunUnguarded`](crate::StoreFailurePolicy::RunUnguarded)).
    ///
    /// # Panics
    /// Panics in an extractor, because the operation is claimed after all extractors.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.claim().1
    }

    /// Returns whether an earlier attempt was abandoned, that is, whether
    /// [`attempt`](Self::attempt) is above 1. Such a handler should find out what was done before
    /// it continues.
    ///
    /// # Panics
    /// Panics in an extractor, because the operation is claimed after all extractors.
    #[must_use]
    pub fn recovering(&self) -> bool {
        self.attempt() > 1
    }

    /// Derives an idempotency key for a call to another service.
    ///
    /// The key is the same for all attempts, also after a restart or a deployment, and differs for
    /// each label. It is a UUID (version 8, RFC 9562 §5.8) that is computed as a hash of the
    /// record's id and the label, so it does not reveal the client's key.
    ///
    /// The key depends neither on the request's body nor on time. If a client sends another body
    /// after a response that was not recorded, or reuses its key after the ttl, the handler derives
    /// the same key again.
    ///
    /// # Panics
    /// Panics in an extractor, because the operation is claimed after all extractors.
    #[must_use]
    pub fn derive_key(&self, label: &str) -> DerivedKey {
        self.id().derive_key(label)
    }

    /// Panics before the claim, because a placeholder id would be shared by all requests.
    #[expect(clippy::expect_used, reason = "a shared derived key is worse than a failed request")]
    fn claim(&self) -> &(RecordId, u32) {
        self.context.claim.get().expect(
            "an `Operation` was used in an extractor; it is claimed after all extractors, so use \
             it in the handler",
        )
    }
}
