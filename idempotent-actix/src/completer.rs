//! Finishing abandoned operations without their clients.

use std::{
    collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, pin::Pin, rc::Rc,
    time::Duration,
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest, HttpResponse, Responder,
    rt::time::{sleep, timeout},
    test::TestRequest,
};
use futures_util::{
    FutureExt, Stream, StreamExt,
    future::{LocalBoxFuture, ready},
    stream,
};
use idempotent_core::{
    Policy, Record, RecordId, StoreError,
    runtime::{self, Attempt},
};
use serde::de::DeserializeOwned;

use crate::{
    declaration::Declaration,
    idempotency::{Idempotency, MountedRoute},
    operation::{Operation, OperationContext, extraction::RequestOperation},
    outcome::RequestOutcome,
    run::{ErasedHandler, KeyedRun},
};

mod handler_of_operation;

/// How many operations the store is asked for at a time.
const PAGE: u32 = 100;
/// How many operations are resumed at the same time.
const AT_ONCE: usize = 4;
/// How long a resumed operation may run by default.
const TIME_LIMIT: Duration = Duration::from_secs(300);

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
    operations: BTreeMap<String, ResumableHandler>,
    app_data: Vec<Box<dyn Fn(TestRequest) -> TestRequest>>,
    every: Duration,
    time_limit: Duration,
}

/// An operation for which a function is registered.
struct ResumableHandler {
    declaration: &'static Declaration,
    policy: Policy,
    resume: Resume,
}

/// Decodes the input of an operation, and prepares its handler.
type Resume = Rc<dyn Fn(&[u8]) -> Result<Prepared, runtime::NoteError>>;

/// A handler with its input, which still needs the operation and the values of its extractors.
type Prepared = Box<dyn FnOnce(HttpRequest, Operation) -> LocalBoxFuture<'static, Handler>>;

type Handler = Pin<Box<dyn ErasedHandler>>;

impl Idempotency {
    /// Returns a completer that resumes no operation yet.
    pub fn completer(&self) -> Completer {
        let (every, time_limit) = (Duration::from_secs(30), TIME_LIMIT);
        let (operations, app_data) = (BTreeMap::new(), Vec::new());
        Completer { idempotency: self.clone(), operations, app_data, every, time_limit }
    }
}

impl Completer {
    /// Sets the average time between two passes. 30 seconds by default. The actual time is between
    /// half of it and one and a half times, so that several processes do not start together.
    pub fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Sets how long a resumed operation may run. 5 minutes by default. What takes longer is
    /// dropped, its lease expires, and a later pass resumes it again, so that one operation that
    /// hangs does not stop the others. A shorter `timeout` of the handler's attribute applies too.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets the function that resumes the operation with this full name, such as
    /// `POST /v1/payments`, or the `name` of its attribute. Its response is recorded like that of
    /// the handler, by the rules of the handler's attribute.
    ///
    /// If no annotated handler has this name, or if it may be that of several handlers whose rules
    /// differ, an error is logged, and the operation is not resumed. That can happen to handlers
    /// that are mounted in an actix-web scope; give them a `name` each.
    ///
    /// [`Operation::key`] panics in such a function, because keys are never stored.
    pub fn resume<I, W, F>(self, operation: &str, work: W) -> Self
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
        self.with(operation, resume)
    }

    /// Sets the function that resumes an operation, like [`resume`](Self::resume), for a function
    /// that also takes an extractor, or a tuple of them: a [`Tx`](crate::Tx), which is committed
    /// with the recording, or a `web::Data` that was added with [`app_data`](Self::app_data).
    ///
    /// The extractors get a request without the client's headers, body and address. If one of them
    /// fails, its error is the outcome.
    pub fn resume_with<X, I, W, F>(self, operation: &str, work: W) -> Self
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
        self.with(operation, resume)
    }

    fn with(mut self, operation: &str, resume: Resume) -> Self {
        match handler_of_operation::find(&self.idempotency, operation) {
            Ok((declaration, policy)) => {
                self.operations
                    .insert(operation.to_owned(), ResumableHandler { declaration, policy, resume });
            }
            Err(reason) => {
                tracing::error!(operation, %reason, "an operation is not resumed");
            }
        }
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

    /// Finds the abandoned operations once, and finishes them, four at a time. Returns how many
    /// were resumed, whatever their outcome.
    ///
    /// Only operations with a function are searched for, in the order of their record ids and page
    /// after page, so that those of other programs in the same store do not hide them.
    ///
    /// # Errors
    /// Fails if the store fails to find operations; those that were found are finished
    /// nevertheless. If it fails for a single operation, that is logged.
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub async fn pass(&self) -> Result<usize, StoreError> {
        let found = stream::iter(&self.operations).flat_map(|(name, operation)| {
            self.abandoned(name).map(move |found| found.map(|id| (id, operation)))
        });
        let finished = found.map(|found| async move {
            match found {
                Ok((id, operation)) => Ok(self.finish_in_time(id, operation).await),
                Err(error) => Err(error),
            }
        });
        let (mut resumed, mut failure) = (0, None);
        let mut finished = std::pin::pin!(finished.buffer_unordered(AT_ONCE));
        while let Some(finished) = finished.next().await {
            match finished {
                Ok(is_resumed) => resumed += usize::from(is_resumed),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(resumed), Err)
    }

    /// The abandoned operations of this name. An error is the last item.
    fn abandoned(&self, name: &str) -> impl Stream<Item = Result<RecordId, StoreError>> {
        let pages = stream::unfold(Some(None::<RecordId>), move |after| async move {
            let after = after?;
            match self.idempotency.runtime().resumable(name, after.as_ref(), PAGE).await {
                Ok(page) => {
                    let ids: Vec<_> = page.ids.into_iter().map(Ok).collect();
                    Some((ids, page.next.map(Some)))
                }
                Err(error) => Some((vec![Err(error)], None)),
            }
        });
        pages.flat_map(stream::iter)
    }

    /// Finishes one operation, unless it takes too long. Returns whether it was resumed.
    async fn finish_in_time(&self, id: RecordId, operation: &ResumableHandler) -> bool {
        let finished = timeout(self.time_limit, self.finish(id, operation)).await;
        finished.unwrap_or_else(|_| {
            let limit = self.time_limit;
            tracing::error!(
                id = %id.short(), ?limit,
                "a resumed operation exceeded its time limit; its lease will expire, and it is \
                 resumed again"
            );
            true
        })
    }

    /// Finishes one operation. Returns whether it was resumed.
    async fn finish(&self, id: RecordId, operation: &ResumableHandler) -> bool {
        let token = self.idempotency.operations().token();
        if self.idempotency.is_draining() {
            return false;
        }
        let Some((attempt, handler)) = self.claim(id, operation).await else { return false };
        tracing::info!(
            id = %id.short(), attempt = attempt.number(), "resuming an abandoned operation"
        );
        let context = OperationContext::resumed();
        let request = TestRequest::default().app_data(self.idempotency.clone());
        let request = self.app_data.iter().fold(request, |request, add| add(request));
        let request = request.to_http_request();
        request.extensions_mut().insert(RequestOperation::Keyed(context.clone()));
        let handler = handler(request.clone(), Operation::of(context.clone()));
        let Ok(handler) = AssertUnwindSafe(handler).catch_unwind().await else {
            let id = id.short();
            tracing::error!(%id, "an extractor of a resumed operation panicked; retrying later");
            return false;
        };
        let idempotency = self.idempotency.clone();
        let (policy, operation) = (operation.policy, operation.declaration);
        let name = Some(operation.name).filter(|name| !name.is_empty());
        let count = idempotency.request_count(name);
        let method = request.method().clone();
        let route = name.map(|name| MountedRoute::new(method, None, name.to_owned()));
        let run = KeyedRun { idempotency, request, operation, route, count, policy, context };
        let response = run.resumed(attempt, handler).await;
        let outcome = response.extensions().get::<RequestOutcome>().copied();
        let outcome = outcome.map(|outcome| outcome.to_string());
        let (id, status) = (id.short(), response.status().as_u16());
        tracing::info!(%id, outcome, status, "resumed an operation");
        drop(token);
        true
    }

    /// Claims an operation, unless another attempt has it.
    async fn claim(
        &self,
        id: RecordId,
        operation: &ResumableHandler,
    ) -> Option<(Attempt, Prepared)> {
        let mut prepared = None;
        let resumed = self.idempotency.runtime().resume(id, |record| {
            prepared = Some(self.prepare(&id, record, operation)?);
            Some(operation.policy)
        });
        match resumed.await {
            Ok(attempt) => Some((attempt?, prepared?)),
            Err(error) => {
                let (id, cause) = (id.short(), std::error::Error::source(&error));
                tracing::warn!(%id, %error, cause, "resuming an operation failed; retrying later");
                None
            }
        }
    }

    /// The handler for a record, unless the record is of an application with another namespace.
    fn prepare(
        &self,
        id: &RecordId,
        record: &Record,
        operation: &ResumableHandler,
    ) -> Option<Prepared> {
        let (input, namespace) =
            (&record.notes.input, self.idempotency.namespace_of(operation.declaration));
        if !runtime::is_input_of(input, namespace) {
            return None;
        }
        match (operation.resume)(input) {
            Ok(prepared) => Some(prepared),
            Err(error) => {
                let (id, name) = (id.short(), record.operation.as_str());
                let cause = std::error::Error::source(&error);
                tracing::error!(
                    %id, name, %error, cause,
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
