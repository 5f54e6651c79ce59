//! Sending again what an earlier process has begun.

use std::{fmt, sync::Arc};

use futures_util::future::join_all;
use http::{Extensions, HeaderMap};
use reqwest::Response;
use reqwest_middleware::ClientWithMiddleware;

use crate::{
    error::{Error, ErrorKind, Outcome},
    idempotency::ClientIdempotency,
    key::{self, HEADER},
    marker::Marker,
    middleware::NO_STORE,
    pending::PendingOperation,
};

/// How many operations are resumed at the same time.
const AT_ONCE: usize = 8;

/// Sends pending operations again, from [`ClientIdempotency::resume`].
#[must_use = "nothing is resumed without `for_each`"]
pub struct Resume<'a> {
    idempotency: &'a ClientIdempotency,
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

impl ClientIdempotency {
    /// Sends the stored operations that have no outcome yet. Call it at the start, before new
    /// operations: it sends everything that is pending, also what this or another process is
    /// sending at that moment, with the same key.
    ///
    /// `client` must have this middleware.
    pub fn resume<'a>(&'a self, client: &'a ClientWithMiddleware) -> Resume<'a> {
        Resume { idempotency: self, client, credentials: None }
    }
}

impl<'a> Resume<'a> {
    /// Sets how an operation whose request had credentials gets them again, because they are not
    /// stored: as the same principal as before, to whom its key belongs. Without this, such
    /// operations are not sent ([`ErrorKind::Credentials`]). It is not needed for default headers
    /// of the client, and for middleware that was added after this one. Extensions of the request
    /// are not stored.
    pub fn credentials(
        self,
        add: impl Fn(&PendingOperation, &mut HeaderMap) + Send + Sync + 'a,
    ) -> Self {
        Self { credentials: Some(Box::new(add)), ..self }
    }

    /// Sends the operations, eight at a time, and calls a function with each result, one after the
    /// other. Returns how many there were.
    ///
    /// An operation that has an outcome stays pending until the function has returned `Ok`. So if
    /// the function fails, or the process dies meanwhile, the next process resumes it again. An
    /// operation whose key has [expired](ErrorKind::Expired) is not sent, and stays until it is
    /// [forgotten](ClientIdempotency::forget).
    ///
    /// # Errors
    /// Fails if the store fails, or if there is none.
    ///
    /// # Cancel safety
    /// If the future is dropped, the operations whose results were not handled stay pending.
    pub async fn for_each<E: fmt::Display>(
        self,
        mut handle: impl AsyncFnMut(Resumed) -> Result<(), E>,
    ) -> Result<usize, Error> {
        let failed = |source| Error::before(ErrorKind::Store, None).caused_by(source);
        let store = self.idempotency.settings.pending.as_ref();
        let store = store.ok_or_else(|| failed(NO_STORE.into()))?;
        let pending = store.pending().await.map_err(failed)?;
        for some in pending.chunks(AT_ONCE) {
            let resuming = some.iter().map(|operation| self.resume(operation.clone()));
            for resumed in join_all(resuming).await {
                let (key, has_outcome) = (resumed.operation.key.clone(), resumed.result.is_ok());
                match handle(resumed).await {
                    Ok(()) if has_outcome => store.finish(&key).await.map_err(failed)?,
                    Ok(()) => {}
                    Err(error) => tracing::warn!(
                        key = key::short(&key),
                        %error,
                        "the result of a resumed operation was not handled; it stays pending"
                    ),
                }
            }
        }
        Ok(pending.len())
    }

    async fn resume(&self, operation: PendingOperation) -> Resumed {
        let key = operation.key.clone();
        let mut request = operation.request.to_request();
        // For a client without the middleware; the middleware sets its own header.
        if let Some(value) = key::to_header(&key) {
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
