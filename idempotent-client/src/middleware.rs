//! The middleware.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use http::Extensions;
use idempotent_http::Key;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};
use tokio::time::{Instant, timeout};

use crate::{
    error::{Error, ErrorKind, Outcome},
    key::{self, HEADER},
    marker::{Marker, chosen_key},
    operation::{Operation, OperationOrigin},
    pending::{PendingOperation, PendingState, PendingStore, StoredRequest},
    settings::ClientSettings,
};

const SCHEME: &str = "the URL is neither http nor https";
pub(crate) const NO_STORE: &str = "there is no store of pending operations";

/// The middleware of [`ClientIdempotency`](crate::ClientIdempotency), from
/// [`middleware`](crate::ClientIdempotency::middleware).
#[derive(Clone)]
pub struct IdempotencyMiddleware {
    pub(crate) settings: Arc<ClientSettings>,
}

#[async_trait]
impl Middleware for IdempotencyMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let started = Instant::now();
        let key = chosen_key(request.headers(), &self.settings.header);
        let marker = match (extensions.get::<Marker>().cloned(), key) {
            // `send` sets the usual header; a header with another name is the application's.
            (Some(marker), Ok(Some(key))) if self.settings.header != HEADER => marker.choose(key),
            (Some(marker), Ok(_)) => Ok(marker),
            (None, Ok(Some(key))) => Marker::default().choose(key),
            (None, Ok(None)) => return next.run(request, extensions).await,
            (_, Err(error)) => Err(error),
        };
        // It is not sent, and the responses' URLs have none.
        request.url_mut().set_fragment(None);
        request.headers_mut().remove(HEADER);
        let sent = match marker {
            Ok(marker) => match self.begin(request, marker, started).await {
                Ok(operation) => operation.run(extensions, next).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        sent.map_err(reqwest_middleware::Error::middleware)
    }
}

impl IdempotencyMiddleware {
    /// Stores an operation, unless it is stored already.
    async fn begin(
        &self,
        request: Request,
        marker: Marker,
        started: Instant,
    ) -> Result<Operation, Error> {
        let settings = &self.settings;
        let mut retries = settings.retries;
        retries.deadline = marker.deadline.unwrap_or(retries.deadline);
        let operation = |request, stored: &PendingOperation, origin| {
            Operation::new(settings.clone(), request, stored, (started, retries), origin)
        };
        // A middleware around this one may send the request several times.
        let was_sent = marker.is_guarded.swap(true, Ordering::Relaxed);
        if let Some(resumed) = &marker.resumed {
            return Ok(operation(request, resumed, OperationOrigin::Resumed));
        }
        let mut outcome = marker.outcome_before();
        if was_sent {
            outcome = Outcome::Unknown;
        }
        let origin = if was_sent || marker.is_chosen {
            OperationOrigin::Known
        } else {
            OperationOrigin::New
        };
        let key = marker.key.unwrap_or_else(key::random);
        // The key of a label may be another one.
        let known_key = marker.is_chosen.then(|| key.clone());
        let error = |kind| Error { outcome, ..Error::before(kind, known_key.clone()) };
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
        let left = retries.deadline.saturating_sub(started.elapsed());
        let known = match timeout(left, store.begin(&new)).await {
            Ok(Ok(known)) => known,
            Ok(Err(source)) => return Err(error(ErrorKind::Store).caused_by(source)),
            Err(elapsed) => {
                // It may be stored, and then `resume` sends it.
                let key = known_key.clone().or_else(|| new.label.is_none().then_some(key));
                let error = Error::before(ErrorKind::Deadline, key).caused_by(elapsed);
                return Err(Error { outcome: Outcome::Unknown, ..error });
            }
        };
        let Some(known) = known else {
            return Ok(operation(request, &new, origin));
        };
        let origin =
            if known.state == PendingState::NotDone { origin } else { OperationOrigin::Known };
        check_same(&new, &known, known_key.as_ref(), store.as_ref()).await?;
        Ok(operation(request, &known, origin))
    }
}

/// Refuses a call whose label or key belongs to a different request.
async fn check_same(
    new: &PendingOperation,
    known: &PendingOperation,
    chosen: Option<&Key>,
    store: &dyn PendingStore,
) -> Result<(), Error> {
    let has_other_label = new.label.is_some() && known.label.is_some() && known.label != new.label;
    let has_other_key = chosen.is_some_and(|key| known.key != *key);
    if !has_other_label && !has_other_key && known.request.is_same(&new.request) {
        return Ok(());
    }
    if known.state == PendingState::NotDone {
        // Otherwise `resume` would send what this call has opened again.
        if let Err(error) = store.retract(&known.key).await {
            tracing::warn!(
                key = key::short(&known.key),
                error,
                "an operation could not be retracted"
            );
        }
    }
    let error = Error::before(ErrorKind::LabelReused, Some(known.key.clone()));
    Err(Error { outcome: Outcome::Unknown, ..error })
}
