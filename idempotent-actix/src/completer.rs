//! Finishing abandoned operations without their clients.

use std::{
    collections::HashMap, fmt, future::Future, panic::AssertUnwindSafe, pin::Pin, rc::Rc,
    time::Duration,
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest, HttpResponse, Responder, rt::time::sleep,
    test::TestRequest,
};
use futures_util::{
    FutureExt, StreamExt,
    future::{LocalBoxFuture, ready},
    stream,
};
use idempotent_core::{Policy, Record, RecordId, StoreError, runtime};
use serde::de::DeserializeOwned;

use crate::{
    idempotency::Idempotency,
    lookup::spec_of,
    operation::{Operation, OperationContext, extraction::RequestOperation},
    outcome::RequestOutcome,
    run::{ErasedHandler, KeyedRun},
    spec::OperationSpec,
};

/// How many operations one pass finds.
const FOUND: u32 = 100;
/// How many operations are resumed at the same time.
const AT_ONCE: usize = 4;

/// Finishes operations that were abandoned after their first step, so that the response is there
/// when the client comes back.
///
/// An operation can be resumed if its handler has called
/// [`Operation::set_input`](crate::Operation::set_input): the input is then stored before the first
/// step. The completer claims such an operation like any retry, when its lease has expired, and
/// calls the function that is registered for it with the input. Of several processes, one resumes
/// an operation. The outcome is recorded by the rules of the handler's attribute.
///
/// ```no_run
/// use actix_web::{HttpResponse, post, web};
/// use idempotent_actix::{Idempotency, Operation, idempotent, scope, store::MemoryStore};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Order { amount: u64 }
/// # async fn charge(_: &Operation, _: u64) -> actix_web::Result<String> { Ok("ch_1".into()) }
/// #[idempotent(scope = "scope::bearer_token")]
/// #[post("/orders")]
/// async fn create_order(
///     operation: Operation,
///     order: web::Json<Order>,
/// ) -> actix_web::Result<HttpResponse> {
///     operation.set_input(&*order)?;
///     finish(operation, order.into_inner()).await
/// }
///
/// async fn finish(operation: Operation, order: Order) -> actix_web::Result<HttpResponse> {
///     let charge = charge(&operation, order.amount).await?; // a step
///     Ok(HttpResponse::Created().body(charge))
/// }
///
/// #[actix_web::main]
/// async fn main() {
///     let idempotency = Idempotency::new(MemoryStore::new());
///     let completer = idempotency.completer().resume("POST /orders", finish);
///     actix_web::rt::spawn(completer.run());
/// }
/// ```
#[must_use = "a completer does nothing until it is run"]
pub struct Completer {
    idempotency: Idempotency,
    resumes: HashMap<String, Resume>,
    app_data: Vec<Box<dyn Fn(TestRequest) -> TestRequest>>,
    every: Duration,
}

/// Decodes the input of an operation, and prepares its handler.
type Resume = Rc<dyn Fn(&[u8]) -> Result<Prepared, runtime::OperationError>>;

/// A handler with its input, which still needs the operation and the values of its extractors.
type Prepared = Box<dyn FnOnce(HttpRequest, Operation) -> LocalBoxFuture<'static, Handler>>;

type Handler = Pin<Box<dyn ErasedHandler>>;

impl Idempotency {
    /// Returns a completer that resumes no operation yet.
    pub fn completer(&self) -> Completer {
        let every = Duration::from_secs(30);
        let (resumes, app_data) = (HashMap::new(), Vec::new());
        Completer { idempotency: self.clone(), resumes, app_data, every }
    }
}

impl Completer {
    /// Sets the average time between two passes. 30 seconds by default. The actual time is between
    /// half of it and one and a half times, so that several processes do not start together.
    pub fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Sets the function that resumes the operation with this full name, such as
    /// `POST /v1/payments`, or the `name` of its attribute. Its response is recorded like that of
    /// the handler.
    ///
    /// [`Operation::key`] panics in such a function, because keys are never stored.
    pub fn resume<I, W, F>(mut self, operation: &str, work: W) -> Self
    where
        I: DeserializeOwned + 'static,
        W: Fn(Operation, I) -> F + Clone + 'static,
        F: Future<Output: Responder<Body: 'static>> + 'static,
    {
        let resume: Resume = Rc::new(move |input| {
            let (input, work) = (runtime::decode_input(input)?, work.clone());
            let prepared = move |_, operation| -> LocalBoxFuture<'static, Handler> {
                Box::pin(async move { Box::pin(work(operation, input)) as Handler })
            };
            Ok(Box::new(prepared) as Prepared)
        });
        self.resumes.insert(operation.to_owned(), resume);
        self
    }

    /// Sets the function that resumes an operation, like [`resume`](Self::resume), for a function
    /// that also takes an extractor, or a tuple of them: a [`Tx`](crate::Tx), which is committed
    /// with the recording, or a `web::Data` that was added with [`app_data`](Self::app_data).
    ///
    /// The extractors get a request without the client's headers, body and address. If one of them
    /// fails, its error is the outcome.
    pub fn resume_with<X, I, W, F>(mut self, operation: &str, work: W) -> Self
    where
        X: FromRequest + 'static,
        I: DeserializeOwned + 'static,
        W: Fn(Operation, X, I) -> F + Clone + 'static,
        F: Future<Output: Responder<Body: 'static>> + 'static,
    {
        let resume: Resume = Rc::new(move |input| {
            let (input, work) = (runtime::decode_input(input)?, work.clone());
            let prepared = move |request, operation| -> LocalBoxFuture<'static, Handler> {
                Box::pin(async move {
                    match X::extract(&request).await {
                        Ok(extracted) => Box::pin(work(operation, extracted, input)) as Handler,
                        Err(error) => {
                            let error: Error = error.into();
                            Box::pin(ready(Err::<HttpResponse, _>(error)))
                        }
                    }
                })
            };
            Ok(Box::new(prepared) as Prepared)
        });
        self.resumes.insert(operation.to_owned(), resume);
        self
    }

    /// Adds data for the extractors of [`resume_with`](Self::resume_with), as
    /// `App::app_data` does for those of handlers.
    pub fn app_data<T: Clone + 'static>(mut self, data: T) -> Self {
        self.app_data.push(Box::new(move |request| request.app_data(data.clone())));
        self
    }

    /// Finishes abandoned operations until it is dropped, or until the application
    /// [drains](Idempotency::drain). A failure of the store is logged, and the next pass tries
    /// again.
    ///
    /// # Cancel safety
    /// If the future is dropped, an operation that it has resumed is abandoned again.
    pub async fn run(self) {
        while !self.idempotency.is_draining() {
            sleep(self.every.mul_f64(0.5 + fastrand::f64())).await;
            if let Err(error) = self.pass().await {
                let cause = std::error::Error::source(&error);
                tracing::warn!(
                    %error, cause,
                    "finding abandoned operations failed; retrying later"
                );
            }
        }
    }

    /// Finds abandoned operations once, and finishes up to 100 of them, four at a time. Returns how
    /// many were resumed, whatever their outcome.
    ///
    /// # Errors
    /// Fails if the store fails to find them. If it fails for a single operation, that is logged.
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub async fn pass(&self) -> Result<usize, StoreError> {
        let found = self.idempotency.runtime().resumable(FOUND).await?;
        let resumed = stream::iter(found).map(|id| self.finish(id)).buffer_unordered(AT_ONCE);
        Ok(resumed.filter(|resumed| ready(*resumed)).count().await)
    }

    /// Finishes one operation. Returns whether it was resumed.
    async fn finish(&self, id: RecordId) -> bool {
        let token = self.idempotency.operations().token();
        if self.idempotency.is_draining() {
            return false;
        }
        let mut prepared = None;
        let resumed = self.idempotency.runtime().resume(id, |record| {
            let (spec, policy, handler) = self.prepare(&id, record)?;
            prepared = Some((spec, policy, handler));
            Some(policy)
        });
        let resumption = match resumed.await {
            Ok(resumption) => resumption,
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::warn!(id = %id.short(), %error, cause, "resuming an operation failed; retrying later");
                return false;
            }
        };
        let (Some(resumption), Some((operation, policy, handler))) = (resumption, prepared) else {
            return false;
        };
        let attempt = resumption.attempt;
        tracing::info!(id = %id.short(), attempt = attempt.number(), "resuming an abandoned operation");
        let context = OperationContext::resumed();
        let request = TestRequest::default().app_data(self.idempotency.clone());
        let request = self.app_data.iter().fold(request, |request, add| add(request));
        let request = request.to_http_request();
        request.extensions_mut().insert(RequestOperation::Keyed(context.clone()));
        let handler = handler(request.clone(), Operation::of(context.clone()));
        let Ok(handler) = AssertUnwindSafe(handler).catch_unwind().await else {
            tracing::error!(id = %id.short(), "an extractor of a resumed operation panicked; retrying later");
            return false;
        };
        let idempotency = self.idempotency.clone();
        let run = KeyedRun { idempotency, request, operation, policy, context };
        let response = run.resumed(attempt, handler).await;
        let outcome = response.extensions().get::<RequestOutcome>().copied();
        let outcome = outcome.map(|outcome| outcome.to_string());
        tracing::info!(id = %id.short(), outcome, status = response.status().as_u16(), "resumed an operation");
        drop(token);
        true
    }

    /// The handler for a record, if the application has one.
    fn prepare(
        &self,
        id: &RecordId,
        record: &Record,
    ) -> Option<(&'static OperationSpec, Policy, Prepared)> {
        let name = record.operation.as_str();
        let resume = self.resumes.get(name)?;
        let Some(spec) = spec_of(name) else {
            tracing::error!(id = %id.short(), name, "no annotated handler has this name; not resuming it");
            return None;
        };
        let policy = self.idempotency.policy(spec).ok()?;
        match resume(&record.notes.input) {
            Ok(prepared) => Some((spec, policy, prepared)),
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::error!(
                    id = %id.short(), name, %error, cause,
                    "the input of an operation cannot be read; not resuming it"
                );
                None
            }
        }
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer").field("every", &self.every).finish_non_exhaustive()
    }
}
