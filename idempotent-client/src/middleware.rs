//! The middleware.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use http::{Extensions, HeaderName};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next};

use crate::{
    error::{Error, ErrorKind, Outcome},
    key::{HEADER, Key},
    operation::Operation,
    pending::{PendingOperation, PendingStore, StoredRequest},
    settings::Settings,
    specification::Specification,
};

/// How many operations are resumed at the same time.
const AT_ONCE: usize = 8;

/// A middleware for reqwest that sends each marked request with an idempotency key, and sends it
/// again until its outcome is known.
///
/// Clones share the store of pending operations.
///
/// ```no_run
/// use idempotent_client::{Idempotency, IdempotentRequest};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idempotent_client::Error> {
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(Idempotency::new())
///     .build();
/// let order = serde_json::json!({ "amount": 100 });
/// let response = client.post("https://api.example/orders").idempotent().json(&order).send().await?;
/// # let _ = response;
/// # Ok(())
/// # }
/// ```
///
/// A request is guarded if it was built with
/// [`idempotent`](crate::IdempotentRequest::idempotent), or if it has the key's header. Any other
/// request passes unchanged.
#[derive(Clone)]
pub struct Idempotency {
    settings: Arc<Settings>,
}

/// What a call site says of its operation. Travels with the request.
#[derive(Clone, Default)]
pub(crate) struct Marker {
    pub(crate) key: Option<Key>,
    pub(crate) label: Option<String>,
    pub(crate) deadline: Option<Duration>,
    /// The stored operation, if it is being resumed.
    pub(crate) resumed: Option<Arc<PendingOperation>>,
    /// Set by the middleware.
    pub(crate) is_guarded: Arc<AtomicBool>,
}

/// An operation that was resumed, and its outcome.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resumed {
    /// The operation, as it was stored.
    pub operation: PendingOperation,
    /// Its response, or why there is still none.
    pub result: Result<Response, Error>,
}

impl Idempotency {
    /// Creates a middleware with the default settings, and without a store of pending operations.
    #[must_use]
    pub fn new() -> Self {
        Self { settings: Arc::new(Settings::default()) }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets where operations are kept until their outcome is known. Without it, they do not survive
    /// this process.
    #[must_use]
    pub fn pending(self, store: impl PendingStore) -> Self {
        self.with(|settings| settings.pending = Some(Arc::new(store)))
    }

    /// Sets the total time for an operation, with all attempts and pauses. 60 seconds by default.
    /// A call site can override it.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|settings| settings.retries.deadline = deadline)
    }

    /// Sets the time limit of one attempt, up to the end of the response's body. 30 seconds by
    /// default.
    #[must_use]
    pub fn attempt_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.retries.attempt_timeout = timeout)
    }

    /// Sets the bounds of the pauses between attempts: the first pause is at most `first`, each
    /// later one at most twice as long, up to `longest`. 200 ms and 10 seconds by default. A server
    /// can ask for a longer pause with `Retry-After`.
    #[must_use]
    pub fn pauses(self, first: Duration, longest: Duration) -> Self {
        self.with(|settings| {
            settings.retries.first_pause = first;
            settings.retries.longest_pause = longest;
        })
    }

    /// Sets how long the server remembers a key, if it publishes no
    /// [specification](Self::specification) that says so. 24 hours by default. No key is sent when
    /// less than the time limit of an attempt is left of that.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|settings| settings.ttl = ttl)
    }

    /// Sets the specification that the server publishes, which says how long it remembers the keys
    /// of each operation.
    #[must_use]
    pub fn specification(self, specification: Specification) -> Self {
        self.with(|settings| settings.specification = Some(specification))
    }

    /// Sets the name of the key's header. `Idempotency-Key` by default.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        self.with(|settings| settings.header = name)
    }

    /// Sets how many bytes of a response are read before it is returned, so that a response that
    /// breaks off is requested again. 8 MiB by default. The rest of a longer response is a stream,
    /// and if that breaks off, the caller gets the error.
    #[must_use]
    pub fn max_response(self, bytes: usize) -> Self {
        self.with(|settings| settings.max_response = bytes)
    }

    /// Sends the stored operations that have no outcome yet, eight at a time, and returns
    /// their results. Call it at the start, before new operations.
    ///
    /// `client` must have this middleware. Credentials are not stored, so its default headers or
    /// another middleware must add them.
    ///
    /// # Errors
    /// Fails if the store fails, or if there is none.
    ///
    /// # Cancel safety
    /// If the future is dropped, the operations without an outcome stay pending.
    pub async fn resume(&self, client: &ClientWithMiddleware) -> Result<Vec<Resumed>, Error> {
        let failed = |source| Error::before(ErrorKind::Store, None).caused_by(source);
        let store = self.settings.pending.as_ref();
        let store =
            store.ok_or_else(|| failed("there is no store of pending operations".into()))?;
        let pending = store.pending().await.map_err(failed)?;
        let resumed = stream::iter(pending).map(|operation| resume_one(client, operation));
        Ok(resumed.buffered(AT_ONCE).collect().await)
    }

    /// Forgets the operation with this key, whatever its state: after its outcome was found out in
    /// another way.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn forget(&self, key: &Key) -> Result<(), Error> {
        match &self.settings.pending {
            None => Ok(()),
            Some(store) => store.forget(key).await.map_err(|source| {
                Error::before(ErrorKind::Store, Some(key.clone())).caused_by(source)
            }),
        }
    }
}

impl Default for Idempotency {
    fn default() -> Self {
        Self::new()
    }
}

async fn resume_one(client: &ClientWithMiddleware, operation: PendingOperation) -> Resumed {
    let mut extensions = Extensions::new();
    let marker = Marker { resumed: Some(Arc::new(operation.clone())), ..Marker::default() };
    extensions.insert(marker.clone());
    let request = operation.request.to_request();
    let sent = client.execute_with_extensions(request, &mut extensions).await;
    let result = marker.result(operation.key.clone(), sent);
    Resumed { operation, result }
}

impl Marker {
    /// The result of a request that was sent with this marker.
    pub(crate) fn result(
        &self,
        key: Key,
        sent: reqwest_middleware::Result<Response>,
    ) -> Result<Response, Error> {
        let not_guarded = !self.is_guarded.load(Ordering::Relaxed);
        match sent {
            Err(reqwest_middleware::Error::Middleware(error)) => match error.downcast() {
                Ok(error) => Err(error),
                Err(error) => Err(Error::before(ErrorKind::Request, Some(key)).caused_by(error)),
            },
            Ok(_) | Err(_) if not_guarded => {
                let error = Error::before(ErrorKind::NotInstalled, Some(key));
                Err(Error { outcome: Outcome::Unknown, attempts: 1, ..error })
            }
            Ok(response) => Ok(response),
            Err(error) => Err(Error::before(ErrorKind::Request, Some(key)).caused_by(error)),
        }
    }
}

#[async_trait]
impl Middleware for Idempotency {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let marker = extensions.get::<Marker>().cloned();
        if marker.is_some() {
            // The key is in the marker, and the header may have another name.
            request.headers_mut().remove(HEADER);
        }
        let header = request.headers().get(&self.settings.header);
        if marker.is_none() && header.is_none() {
            return next.run(request, extensions).await;
        }
        let from_header = header.and_then(|value| value.to_str().ok()?.parse().ok());
        let marker = marker.unwrap_or_default();
        marker.is_guarded.store(true, Ordering::Relaxed);
        let operation = self.begin(request, from_header, marker).await;
        let sent = match operation {
            Ok(operation) => operation.run(extensions, next).await,
            Err(error) => Err(error),
        };
        sent.map_err(reqwest_middleware::Error::middleware)
    }
}

impl Idempotency {
    /// Determines the key of an operation, and stores the operation.
    async fn begin(
        &self,
        request: Request,
        from_header: Option<Key>,
        marker: Marker,
    ) -> Result<Operation, Error> {
        let settings = &self.settings;
        let mut retries = settings.retries;
        retries.deadline = marker.deadline.unwrap_or(retries.deadline);
        let operation = |request, stored: &PendingOperation, is_known| {
            Operation::new(settings.clone(), request, stored, retries, is_known)
        };
        if let Some(resumed) = marker.resumed {
            return Ok(operation(request, &resumed, true));
        }
        let key = marker.key.or(from_header).unwrap_or_else(Key::random);
        let Some(stored) = StoredRequest::of(&request) else {
            return Err(Error::before(ErrorKind::StreamingBody, Some(key)));
        };
        let ttl = settings.ttl_of(&stored);
        let new = PendingOperation::new(key.clone(), marker.label, stored, ttl);
        let Some(store) = &settings.pending else {
            return Ok(operation(request, &new, false));
        };
        let begun = store
            .begin(new.clone())
            .await
            .map_err(|source| Error::before(ErrorKind::Store, Some(key)).caused_by(source))?;
        // An operation with this label or key was begun earlier.
        let is_known = begun != new;
        if is_known && !begun.request.is_same(&new.request) {
            return Err(Error::before(ErrorKind::LabelReused, Some(begun.key)));
        }
        Ok(operation(request, &begun, is_known))
    }
}
