//! The middleware.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use http::{Extensions, HeaderName};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};

use crate::{
    error::{Error, ErrorKind, Outcome},
    key::{HEADER, Key},
    marker::Marker,
    operation::{Operation, Origin},
    pending::{PendingOperation, PendingStore, StoredRequest},
    settings::Settings,
    specification::Specification,
};

const SCHEME: &str = "the URL is neither http nor https";
pub(crate) const NO_STORE: &str = "there is no store of pending operations";

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
/// let request = client.post("https://api.example/orders").idempotent().json(&order);
/// let response = request.send().await?;
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
    pub(crate) settings: Arc<Settings>,
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

    /// Sets how long the server remembers a key, if there is no
    /// [specification](Self::specification). 24 hours by default. A key is not sent when less than
    /// the time limit of the attempt is left of that.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|settings| settings.ttl = ttl)
    }

    /// Sets the specification that the server publishes, which says how long it remembers the keys
    /// of each operation. The shortest of these times holds for an operation that the specification
    /// does not name. All requests of the client are taken for requests to that server.
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

    /// Forgets the operation with this key, whatever its state: after its outcome was found out in
    /// another way, or to use its label again. Each response has its key as an extension
    /// (`response.extensions().get::<Key>()`), and each [`Error`] as [`Error::key`].
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

#[async_trait]
impl Middleware for Idempotency {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let header = request.headers().get(&self.settings.header).cloned();
        let marker = match (extensions.get::<Marker>().cloned(), header) {
            // `send` sets the usual header; a header with another name is the application's.
            (Some(marker), Some(header)) if !marker.is_chosen && self.settings.header != HEADER => {
                Marker::of_header(&header).map(|chosen| Marker {
                    key: chosen.key,
                    is_chosen: true,
                    ..marker
                })
            }
            (Some(marker), _) => Ok(marker),
            (None, Some(header)) => Marker::of_header(&header),
            (None, None) => return next.run(request, extensions).await,
        };
        request.headers_mut().remove(HEADER);
        let sent = match marker {
            Ok(marker) => match self.begin(request, marker).await {
                Ok(operation) => operation.run(extensions, next).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        sent.map_err(reqwest_middleware::Error::middleware)
    }
}

impl Idempotency {
    /// Stores an operation, unless it is stored already.
    async fn begin(&self, request: Request, marker: Marker) -> Result<Operation, Error> {
        let settings = &self.settings;
        let mut retries = settings.retries;
        retries.deadline = marker.deadline.unwrap_or(retries.deadline);
        let operation = |request, stored: &PendingOperation, origin| {
            Operation::new(settings.clone(), request, stored, retries, origin)
        };
        // A middleware around this one may send the request several times.
        let was_sent = marker.is_guarded.swap(true, Ordering::Relaxed);
        if let Some(resumed) = &marker.resumed {
            return Ok(operation(request, resumed, Origin::Resumed));
        }
        let mut outcome = marker.outcome_before();
        if was_sent {
            outcome = Outcome::Unknown;
        }
        let origin = if was_sent || marker.is_chosen { Origin::Known } else { Origin::New };
        let key = marker.key.unwrap_or_else(Key::random);
        let error = |kind| {
            // The key of a label may be another one.
            let key = marker.is_chosen.then(|| key.clone());
            Error { outcome, ..Error::before(kind, key) }
        };
        let Some(stored) = StoredRequest::of(&request) else {
            return Err(error(ErrorKind::StreamingBody));
        };
        if !matches!(stored.url.scheme(), "http" | "https") {
            return Err(error(ErrorKind::Request).caused_by(SCHEME));
        }
        let new = PendingOperation {
            label: marker.label,
            has_credentials: StoredRequest::has_credentials(&request),
            ..PendingOperation::new(key.clone(), marker.begun_at, settings.ttl_of(&stored), stored)
        };
        let Some(store) = &settings.pending else {
            if new.label.is_some() {
                return Err(error(ErrorKind::Store).caused_by(NO_STORE));
            }
            return Ok(operation(request, &new, origin));
        };
        let _noting = settings.noting.lock().await;
        let begun = store.begin(&new).await;
        let known = begun.map_err(|source| error(ErrorKind::Store).caused_by(source))?;
        let Some(known) = known else {
            return Ok(operation(request, &new, origin));
        };
        let has_other_label =
            new.label.is_some() && known.label.is_some() && known.label != new.label;
        let has_other_key = marker.is_chosen && known.key != key;
        if has_other_label || has_other_key || !known.request.is_same(&new.request) {
            let error = Error::before(ErrorKind::LabelReused, Some(known.key));
            return Err(Error { outcome: Outcome::Unknown, ..error });
        }
        let origin = if known.finished { Origin::Finished } else { Origin::Known };
        Ok(operation(request, &known, origin))
    }
}
