//! Looking a key up at the server.

use std::time::Duration;

use http::{StatusCode, header};
use idempotent_core::{DerivedKey, runtime::Reconciliation};
use idempotent_http::problem::ProblemKind;
use reqwest::Url;
use reqwest_middleware::ClientWithMiddleware;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

/// How long to wait between two lookups of an operation that is in flight.
const INTERVAL: Duration = Duration::from_millis(100);
/// The time limit of one lookup.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The resource of a server that uses `idempotent-actix` (`Idempotency::lookup_resource`) at which
/// a client finds out the state of its own keys.
///
/// The client must authenticate as it does for the operation: to another principal, a key is
/// unknown.
#[derive(Clone, Debug)]
pub struct Lookup {
    client: ClientWithMiddleware,
    url: Url,
    operation: Option<String>,
    wait: Duration,
}

/// What a server knows about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Known {
    /// The server has no record of the key: no request with it was accepted, or the record has
    /// expired, or its operation cannot be looked up (see the server's
    /// `Idempotency::lookup_resource`). A request that is still on its way may be accepted later.
    Absent,
    /// A request with the key is in progress.
    InFlight(Progress),
    /// The attempt was abandoned, and the next request runs the operation again.
    Abandoned(Progress),
    /// The operation is complete. To get its response, send the request again.
    Completed {
        /// The status of the recorded response.
        status: StatusCode,
        /// The reference that the handler has set.
        reference: Option<String>,
    },
    /// The server does not know the outcome, and runs nothing until someone has resolved the key.
    Held(Progress),
}

/// What is known of an operation that is not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The reference that the handler has set.
    pub reference: Option<String>,
    /// The progress that the handler has reported.
    pub progress: Option<String>,
}

/// A lookup that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The server could not be reached, or its response could not be read.
    #[error("the lookup of an idempotency key failed")]
    #[non_exhaustive]
    Request {
        /// The cause.
        #[from]
        source: reqwest_middleware::Error,
    },
    /// The server refused the lookup, or failed.
    #[error("the lookup of an idempotency key got status {status}")]
    #[non_exhaustive]
    Status {
        /// The status of the response.
        status: StatusCode,
    },
    /// The server did not respond within 10 seconds.
    #[error("the lookup of an idempotency key timed out")]
    #[non_exhaustive]
    TimedOut {},
    /// The operation is still in progress after the time to wait. Only
    /// [`Lookup::reconcile`] fails so.
    #[error("the operation with this idempotency key is still in progress")]
    #[non_exhaustive]
    InFlight {},
    /// The response is not that of a lookup.
    #[error("the response to the lookup of an idempotency key has an unknown format")]
    #[non_exhaustive]
    Format {},
}

#[derive(Deserialize)]
struct Answer {
    state: String,
    status: Option<u16>,
    reference: Option<String>,
    progress: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
}

impl Lookup {
    /// Creates a lookup. `url` is the URL of the server's resource without the key, such as
    /// `https://shipping.internal/idempotency/keys`.
    #[must_use]
    pub fn new(client: ClientWithMiddleware, url: Url) -> Self {
        Self { client, url, operation: None, wait: Duration::from_secs(2) }
    }

    /// Sets the full name of the operation, such as `POST /v1/shipments`. Without it, the server
    /// looks in all operations, except those that are mounted in a scope of the application.
    #[must_use]
    pub fn operation(self, name: impl Into<String>) -> Self {
        Self { operation: Some(name.into()), ..self }
    }

    /// Sets how long [`find`](Self::find) waits for an operation that is in flight. 2 seconds by
    /// default.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Asks the server what it knows about a key. If the operation is in flight, asks again until
    /// it is not, or until the time to wait is over.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, or refuses the lookup.
    pub async fn find(&self, key: &str) -> Result<Known, LookupError> {
        let started = Instant::now();
        loop {
            let asked = timeout(TIMEOUT, self.ask(key)).await;
            let known = asked.map_err(|_| LookupError::TimedOut {})??;
            let is_over = started.elapsed().saturating_add(INTERVAL) > self.wait;
            if is_over || !matches!(known, Known::InFlight(_)) {
                return Ok(known);
            }
            sleep(INTERVAL).await;
        }
    }

    async fn ask(&self, key: &str) -> Result<Known, LookupError> {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(key);
        }
        if let Some(operation) = &self.operation {
            url.query_pairs_mut().append_pair("operation", operation);
        }
        let request = self.client.get(url).header(header::ACCEPT, "application/json");
        // The URL contains the key.
        let response = request.send().await.map_err(reqwest_middleware::Error::without_url)?;
        let status = response.status();
        let body = response.bytes().await.map_err(reqwest::Error::without_url);
        let body = body.map_err(reqwest_middleware::Error::from)?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .ok()
                .and_then(Answer::into_known)
                .ok_or(LookupError::Format {}),
            // Any other 404 means that there is no such resource.
            StatusCode::NOT_FOUND
                if serde_json::from_slice(&body).is_ok_and(|refusal: Refusal| {
                    refusal.code == ProblemKind::KeyUnknown.code()
                }) =>
            {
                Ok(Known::Absent)
            }
            status => Err(LookupError::Status { status }),
        }
    }
}

impl Answer {
    fn into_known(self) -> Option<Known> {
        let Self { state, status, reference, progress } = self;
        let progress = Progress { reference, progress };
        Some(match state.as_str() {
            "in_flight" => Known::InFlight(progress),
            "abandoned" => Known::Abandoned(progress),
            "held" => Known::Held(progress),
            "completed" => Known::Completed {
                status: StatusCode::from_u16(status?).ok()?,
                reference: progress.reference,
            },
            _ => return None,
        })
    }
}

impl Lookup {
    /// Reconciles a step of a handler with the server that the step calls, by the derived key
    /// of the step.
    ///
    /// `result` turns the reference of an operation that has succeeded (2xx) into the result of
    /// the step. If it returns `None`, or if the operation has not succeeded, the step is run:
    /// it sends its request again, and gets the recorded response.
    ///
    /// | what the server knows | the step |
    /// |---|---|
    /// | completed with 2xx | `Found(result)`, or `Absent` without a result |
    /// | completed with another status | `Absent` |
    /// | nothing, or abandoned | `Absent`: it is run. Its request has the same key, so a request that is still on its way does no harm |
    /// | in flight, after the time to wait | it fails ([`LookupError::InFlight`]), and the next attempt asks again |
    /// | held | `Unknown`: the key of the caller is held too |
    ///
    /// The step must send the same request as the earlier attempt, as the same principal. The
    /// server must remember its keys for at least as long as the caller remembers its own.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, or if the operation is in flight. The step then
    /// fails too, without being run.
    pub async fn reconcile<T>(
        &self,
        key: &DerivedKey,
        result: impl FnOnce(Option<&str>) -> Option<T>,
    ) -> Result<Reconciliation<T>, LookupError> {
        Ok(match self.find(&key.to_string()).await? {
            Known::Completed { status, reference } if status.is_success() => {
                result(reference.as_deref()).map_or(Reconciliation::Absent, Reconciliation::Found)
            }
            Known::Completed { .. } | Known::Absent | Known::Abandoned(_) => Reconciliation::Absent,
            Known::InFlight(_) => return Err(LookupError::InFlight {}),
            Known::Held(_) => Reconciliation::Unknown,
        })
    }
}
