//! One operation: its attempts, until its outcome is known.

use std::{sync::Arc, time::SystemTime};

use http::{Extensions, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::Next;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock,
    error::{BoxError, Error, ErrorKind, Outcome},
    key::Key,
    pending::PendingOperation,
    received::Received,
    retries::Retries,
    settings::Settings,
    verdict::{Again, Verdict, judge},
};

/// An operation with its key.
pub(crate) struct Operation {
    settings: Arc<Settings>,
    request: Request,
    key: Key,
    expires_at: SystemTime,
    retries: Retries,
    /// Whether an attempt may have been run.
    may_be_done: bool,
    attempts: u32,
    last_status: Option<StatusCode>,
}

/// What an attempt has led to.
enum Attempt {
    Done(Response),
    /// The request can be sent again.
    Again(Again, Option<BoxError>),
    /// Sending the request again would not lead to the outcome.
    Ended {
        kind: ErrorKind,
        reference: Option<String>,
        source: Option<BoxError>,
    },
}

impl Operation {
    /// `is_known` says whether the operation was begun earlier, perhaps in another process.
    pub(crate) fn new(
        settings: Arc<Settings>,
        mut request: Request,
        stored: &PendingOperation,
        retries: Retries,
        is_known: bool,
    ) -> Self {
        if let Some(value) = stored.key.to_header() {
            request.headers_mut().insert(settings.header.clone(), value);
        }
        Self {
            settings,
            request,
            key: stored.key.clone(),
            expires_at: stored.expires_at,
            retries,
            may_be_done: is_known,
            attempts: 0,
            last_status: None,
        }
    }

    /// Sends the request until its outcome is known, or until the deadline.
    ///
    /// If the future is dropped, the operation stays pending.
    pub(crate) async fn run(
        mut self,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let deadline = Instant::now() + self.retries.deadline;
        loop {
            // Later, the server could take the request for a new operation.
            if clock::now() + self.retries.attempt_timeout > self.expires_at {
                return Err(self.error(ErrorKind::Expired));
            }
            let Some(request) = self.request.try_clone() else {
                return Err(self.error(ErrorKind::StreamingBody));
            };
            self.attempts += 1;
            let (again, source) =
                match self.attempt(request, extensions, next.clone(), deadline).await {
                    Attempt::Done(response) => {
                        self.finish().await;
                        return Ok(response);
                    }
                    Attempt::Again(again, source) => (again, source),
                    Attempt::Ended { kind, reference, source } => {
                        self.may_be_done = true;
                        return Err(Error { reference, source, ..self.error(kind) });
                    }
                };
            self.may_be_done |= !again.did_not_run;
            let pause = self.retries.pause(self.attempts, again.after);
            if Instant::now() + pause >= deadline {
                return Err(Error { source, ..self.error(ErrorKind::Deadline) });
            }
            tracing::debug!(
                key = self.key.short(),
                attempt = self.attempts,
                status = self.last_status.map(|status| status.as_u16()),
                error = source,
                ?pause,
                "sending a request again after a pause"
            );
            sleep(pause).await;
        }
    }

    async fn attempt(
        &mut self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
        deadline: Instant,
    ) -> Attempt {
        let limit = self.retries.attempt_timeout.min(deadline - Instant::now());
        let received = timeout(limit, async {
            let response = next.run(request, extensions).await?;
            self.last_status = Some(response.status());
            Ok(Received::read(response, self.settings.max_response).await?)
        });
        match received.await {
            Err(elapsed) => Attempt::Again(Again::default(), Some(elapsed.into())),
            Ok(Err(error)) => failed(error),
            Ok(Ok(received)) => {
                let now = clock::since_epoch(clock::now());
                match judge(received.status(), received.headers(), received.start(), now) {
                    Verdict::Definitive => Attempt::Done(received.into_response()),
                    Verdict::Again(again) => Attempt::Again(again, None),
                    Verdict::Unknown { reference } => {
                        Attempt::Ended { kind: ErrorKind::Held, reference, source: None }
                    }
                }
            }
        }
    }

    /// Notes that the outcome is known.
    async fn finish(&self) {
        let Some(store) = &self.settings.pending else { return };
        if let Err(error) = store.finish(&self.key).await {
            tracing::warn!(
                key = self.key.short(),
                error,
                "the outcome of an operation could not be noted; it stays pending, and the server \
                 will replay its response"
            );
        }
    }

    fn error(&self, kind: ErrorKind) -> Error {
        let outcome = if self.may_be_done { Outcome::Unknown } else { Outcome::NotDone };
        Error {
            outcome,
            attempts: self.attempts,
            last_status: self.last_status,
            ..Error::before(kind, Some(self.key.clone()))
        }
    }
}

fn failed(error: reqwest_middleware::Error) -> Attempt {
    let end = |source| Attempt::Ended { kind: ErrorKind::Request, reference: None, source };
    match error {
        reqwest_middleware::Error::Reqwest(error) if error.is_builder() || error.is_redirect() => {
            end(Some(error.into()))
        }
        reqwest_middleware::Error::Reqwest(error) => {
            // Only a connection that could not be made proves that the request was not received.
            let again = Again { after: None, did_not_run: error.is_connect() };
            Attempt::Again(again, Some(error.into()))
        }
        reqwest_middleware::Error::Middleware(error) => end(Some(error.into())),
    }
}
