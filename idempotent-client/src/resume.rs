//! Sending again what an earlier process has begun.

use std::{fmt, sync::Arc};

use futures_util::{StreamExt, stream};
use http::{Extensions, HeaderMap};
use reqwest::Response;
use reqwest_middleware::ClientWithMiddleware;

use crate::{
    error::{Error, ErrorKind, Outcome},
    key::HEADER,
    marker::Marker,
    middleware::{Idempotency, NO_STORE},
    pending::PendingOperation,
};

/// How many operations are resumed at the same time.
const AT_ONCE: usize = 8;

/// Sends pending operations again, from [`Idempotency::resume`].
#[must_use = "nothing is resumed without `for_each`"]
pub struct Resume<'a> {
    idempotency: &'a Idempotency,
    client: &'a ClientWithMiddleware,
    credentials: Option<Box<AddCredentials<'a>>>,
}

type AddCredentials<'a> = dyn Fn(&PendingOperation, &mut HeaderMap) + Send + Sync + 'a;

/// An operation that was resumed, and its outcome.
#[non_exhaustive]
pub struct Resumed {
    /// The operation, as it was stored.
    pub operation: PendingOperation,
    /// Its response, or why there is still none.
    pub result: Result<Response, Error>,
}

impl Idempotency {
    /// Sends the stored operations that have no outcome yet. Call it at the start, before new
    /// operations: it sends everything that is pending, also what is being sent at that moment.
    ///
    /// `client` must have this middleware.
    pub fn resume<'a>(&'a self, client: &'a ClientWithMiddleware) -> Resume<'a> {
        Resume { idempotency: self, client, credentials: None }
    }
}

impl<'a> Resume<'a> {
    /// Sets how an operation whose request had credentials gets them again, because they are not
    /// stored: as the same principal as before, to whom its key belongs. Without this, such
    /// operations are not sent ([`ErrorKind::Credentials`]). Default headers of the client are not
    /// concerned.
    pub fn credentials(
        self,
        add: impl Fn(&PendingOperation, &mut HeaderMap) + Send + Sync + 'a,
    ) -> Self {
        Self { credentials: Some(Box::new(add)), ..self }
    }

    /// Sends the operations, eight at a time, and calls a function with each result, one after the
    /// other. Returns how many there were.
    ///
    /// An operation that has an outcome is pending until the function has returned. So if the
    /// process dies meanwhile, the next one resumes it again.
    ///
    /// # Errors
    /// Fails if the store fails, or if there is none.
    ///
    /// # Cancel safety
    /// If the future is dropped, the operations whose results were not handled stay pending.
    pub async fn for_each(self, mut handle: impl AsyncFnMut(Resumed)) -> Result<usize, Error> {
        let failed = |source| Error::before(ErrorKind::Store, None).caused_by(source);
        let store = self.idempotency.settings.pending.as_ref();
        let store = store.ok_or_else(|| failed(NO_STORE.into()))?;
        let pending = store.pending().await.map_err(failed)?;
        let number = pending.len();
        let resumed = stream::iter(pending).map(|operation| self.resume(operation));
        let mut resumed = std::pin::pin!(resumed.buffer_unordered(AT_ONCE));
        while let Some(resumed) = resumed.next().await {
            let key = resumed.result.is_ok().then(|| resumed.operation.key.clone());
            handle(resumed).await;
            if let Some(key) = key {
                store.finish(&key).await.map_err(failed)?;
            }
        }
        Ok(number)
    }

    async fn resume(&self, operation: PendingOperation) -> Resumed {
        let key = operation.key.clone();
        let mut request = operation.request.to_request();
        // For a client without the middleware; the middleware sets its own header.
        if let Some(value) = key.to_header() {
            request.headers_mut().insert(HEADER, value);
        }
        match &self.credentials {
            Some(add) => add(&operation, request.headers_mut()),
            None if operation.has_credentials => {
                let error = Error::before(ErrorKind::Credentials, Some(key));
                let result = Err(Error { outcome: Outcome::Unknown, ..error });
                return Resumed { operation, result };
            }
            None => {}
        }
        let mut extensions = Extensions::new();
        let marker = Marker { resumed: Some(Arc::new(operation.clone())), ..Marker::default() };
        extensions.insert(marker.clone());
        let sent = self.client.execute_with_extensions(request, &mut extensions).await;
        let result = marker.result(key, sent);
        Resumed { operation, result }
    }
}

/// Shows neither headers nor the URL's query.
impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.result.as_ref().map(Response::status);
        f.debug_struct("Resumed")
            .field("operation", &self.operation)
            .field("result", &status)
            .finish()
    }
}
