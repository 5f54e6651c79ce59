//! The operation that is running, for its handler.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

pub use idempotent_core::runtime::Reconciliation;
use idempotent_core::{
    DerivedKey, Key, RecordId,
    runtime::{self, NoteError},
};
use serde::Serialize;

pub use self::error::OperationError;
use crate::{declaration::Declaration, idempotency::Idempotency, in_flight::PermitHolder};

pub(crate) mod extraction;

mod error;

/// An extractor of the current operation: its key, the id of its record, the number of the attempt,
/// derived keys for calls to other services, steps, and what the record shows about it.
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
/// async fn create_payment(operation: Operation) -> actix_web::Result<HttpResponse> {
///     # let bank = Bank;
///     // The bank gets the same key from each attempt, so it charges once.
///     bank.charge(operation.derive_key("charge")?.to_string()).await;
///     Ok(HttpResponse::Created().finish())
/// }
/// ```
///
/// An operation is claimed after all extractors: in an extractor, every method but
/// [`key`](Self::key) fails, and so does a [`step`](Self::step) when it is run.
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
    /// `None` if the operation is resumed without its client.
    key: Option<Key>,
    operation: OnceCell<runtime::Run>,
    /// The application and the handler, which say what the namespace of the record is.
    origin: OnceCell<(Idempotency, &'static Declaration)>,
    /// Whether the client has disconnected and the operation continues in a separate task.
    pub(crate) detached: Cell<bool>,
    pub(crate) permit: PermitHolder,
}

impl OperationContext {
    pub(crate) fn new(key: Key) -> Rc<Self> {
        Self::of(Some(key))
    }

    /// The data of an operation that is resumed without its client.
    pub(crate) fn resumed() -> Rc<Self> {
        Self::of(None)
    }

    fn of(key: Option<Key>) -> Rc<Self> {
        let (operation, origin) = (OnceCell::new(), OnceCell::new());
        let (detached, permit) = (Cell::new(false), PermitHolder::default());
        Rc::new(Self { key, operation, origin, detached, permit })
    }

    /// The key that the client sent; `None` if the operation is resumed without its client.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The key of a request. Operations that are resumed run without the guard, which asks.
    #[expect(clippy::expect_used, reason = "a made-up key is worse than a failed attempt")]
    pub(crate) fn sent_key(&self) -> &Key {
        self.key().expect("a request with an operation has a key")
    }

    /// Sets the claimed operation. A request is claimed once, so it is not set yet.
    pub(crate) fn set_operation(
        &self,
        operation: runtime::Run,
        idempotency: &Idempotency,
        declaration: &'static Declaration,
    ) {
        let _ = self.operation.set(operation);
        let _ = self.origin.set((idempotency.clone(), declaration));
    }

    /// The claimed operation; `None` before the claim.
    pub(crate) fn operation(&self) -> Option<&runtime::Run> {
        self.operation.get()
    }
}

impl Operation {
    pub(crate) fn of(context: Rc<OperationContext>) -> Self {
        Self { context }
    }

    /// Returns the key that the client sent; `None` if the operation is
    /// [resumed](crate::Completer) without its client, because keys are not stored.
    ///
    /// The key may be a secret: log [`id`](Self::id) instead, and send
    /// [`derive_key`](Self::derive_key) to other services.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.context.key()
    }

    /// Returns the id of this operation's record. It is the same for all attempts.
    ///
    /// # Errors
    /// Fails in an extractor, because the operation is claimed after all extractors.
    pub fn id(&self) -> Result<&RecordId, OperationError> {
        Ok(self.claimed()?.id())
    }

    /// Returns the number of this attempt: 1 for the first. From 2 on, an earlier attempt was
    /// abandoned and may have done some or all of its work.
    ///
    /// It is 1 for a request that runs unguarded because the store failed
    /// ([`StoreFailurePolicy::RunUnguarded`](crate::StoreFailurePolicy::RunUnguarded)).
    ///
    /// # Errors
    /// Fails in an extractor, because the operation is claimed after all extractors.
    pub fn attempt(&self) -> Result<u32, OperationError> {
        Ok(self.claimed()?.attempt())
    }

    /// Returns whether an earlier attempt was abandoned, that is, whether
    /// [`attempt`](Self::attempt) is above 1. Such a handler should find out what was done before
    /// it continues.
    ///
    /// # Errors
    /// Fails in an extractor, because the operation is claimed after all extractors.
    pub fn recovering(&self) -> Result<bool, OperationError> {
        Ok(self.claimed()?.recovering())
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
    /// # Errors
    /// Fails in an extractor, because the operation is claimed after all extractors.
    pub fn derive_key(&self, label: &str) -> Result<DerivedKey, OperationError> {
        Ok(self.claimed()?.derive_key(label))
    }

    /// Sets the reference that the record shows: the id of what the operation created, or is about
    /// to create, such as `pi_123`. Lookups and the problems of later requests with the key show
    /// it. The last reference stays in the record, also if the attempt is abandoned.
    ///
    /// It is one call to the store. While the handler's [`Tx`](crate::Tx) is open, the reference is
    /// stored together with the response instead, and is lost if the process dies before that.
    ///
    /// # Errors
    /// Fails if the reference is empty, has more than 255 bytes, or contains a control character,
    /// if the store fails, or if another attempt has taken over the key.
    pub async fn set_reference(&self, reference: &str) -> Result<(), OperationError> {
        Ok(self.claimed()?.set_reference(reference).await?)
    }

    /// Reports the progress, in the handler's words, such as `3 of 10`. A lookup shows the last
    /// report until the operation is complete. It is one call to the store.
    ///
    /// # Errors
    /// As for [`set_reference`](Self::set_reference). Fails also while the handler's
    /// [`Tx`](crate::Tx) is open, because nobody could see the report before its end.
    pub async fn progress(&self, progress: &str) -> Result<(), OperationError> {
        Ok(self.claimed()?.progress(progress).await?)
    }

    /// Passes the point of no return: from now on, the key is held if the handler fails or its
    /// process dies. Call it before the first effect that must not be repeated.
    ///
    /// It needs `abandoned = "retry_then_hold"`. What fails before the call is then released, and
    /// the next request runs again. The first [`step`](Self::step) implies the call.
    ///
    /// # Errors
    /// Fails if `abandoned` is `"retry"` or `"hold"`, if the store fails, if another attempt has
    /// taken over the key, or while the handler's [`Tx`](crate::Tx) is open. Then do not begin the
    /// effect.
    pub async fn point_of_no_return(&self) -> Result<(), OperationError> {
        Ok(self.claimed()?.point_of_no_return().await?)
    }

    /// Sets the input from which a [`Completer`](crate::Completer) can finish the operation without
    /// its client. It is stored as JSON before the first step, until the operation is complete.
    /// Keep no secrets in it.
    ///
    /// # Errors
    /// Fails if the input cannot be serialized, or has more than 256 KiB.
    pub fn set_input<T: Serialize + ?Sized>(&self, input: &T) -> Result<(), OperationError> {
        let operation = self.claimed()?;
        match self.context.origin.get() {
            Some((idempotency, declaration)) => {
                Ok(operation.set_input_in(idempotency.namespace_of(declaration), input)?)
            }
            None => Ok(operation.set_input(input)?),
        }
    }

    /// Names a step of the operation: a recovery point. Its result is recorded once it is done, and
    /// a later attempt gets the result instead of running the step again.
    ///
    /// `name` has 1 to 255 bytes and is the label of the [derived key](Self::derive_key) that the
    /// step gets. Steps run one after the other, in the same order in each attempt. Never rename a
    /// step while operations may be in flight. Each step is one call to the store. Under
    /// `abandoned = "retry_then_hold"` the first one implies the
    /// [point of no return](Self::point_of_no_return), which is another call.
    ///
    /// ```
    /// use actix_web::{HttpResponse, post, web};
    /// use idempotent_actix::{DerivedKey, Operation, idempotent, scope};
    ///
    /// # struct Bank;
    /// # impl Bank {
    /// #     async fn charge(&self, _: DerivedKey) -> actix_web::Result<String> {
    /// #         Ok("ch_1".into())
    /// #     }
    /// # }
    /// #[idempotent(scope = "scope::bearer_token")]
    /// #[post("/v1/payments")]
    /// async fn pay(
    ///     operation: Operation,
    ///     bank: web::Data<Bank>,
    /// ) -> actix_web::Result<HttpResponse> {
    ///     let charge = operation.step("charge").run(|key| bank.charge(key)).await?;
    ///     Ok(HttpResponse::Created().body(charge))
    /// }
    /// ```
    pub fn step<'a>(&'a self, name: &'a str) -> Step<'a> {
        let operation = self.context.operation();
        operation.map_or_else(|| runtime::Step::unclaimed(name), |run| run.step(name)).with_error()
    }

    fn claimed(&self) -> Result<&runtime::Run, OperationError> {
        Ok(self.context.operation().ok_or(NoteError::NotClaimed)?)
    }
}

/// A step of an operation, from [`Operation::step`].
pub type Step<'a> = runtime::Step<'a, OperationError>;
