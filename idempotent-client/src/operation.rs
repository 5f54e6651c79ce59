//! One operation: its attempts, until its outcome is known.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Extensions, StatusCode};
use idempotent_http::Key;
use reqwest::{Request, Response};
use reqwest_middleware::Next;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock,
    error::{BoxError, Error, ErrorKind, Outcome},
    key,
    pending::PendingOperation,
    received::Received,
    redirects::Redirects,
    retries::Retries,
    settings::ClientSettings,
    verdict::{Again, Meaning, Sent, is_replay, judge},
};

/// An operation with its key.
pub(crate) struct Operation {
    settings: Arc<ClientSettings>,
    request: Request,
    key: Key,
    has_label: bool,
    expires_at: SystemTime,
    /// When the call began. Its deadline counts from here.
    started: Instant,
    retries: Retries,
    origin: OperationOrigin,
    /// Whether an attempt may have been run.
    may_be_done: bool,
    /// Whether an attempt got a response that is perhaps not the operation's.
    was_refused: bool,
    attempts: u32,
    last_status: Option<StatusCode>,
}

/// Where an operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationOrigin {
    /// It begins here.
    New,
    /// It may have been begun earlier, perhaps by another process.
    Known,
    /// As above; who resumes it notes its outcome.
    Resumed,
}

/// What an attempt has led to.
enum Attempt {
    Done(Done),
    /// The request can be sent again.
    Again(Again, Option<BoxError>),
    /// Sending the request again would not lead to the outcome.
    Ended {
        kind: ErrorKind,
        reference: Option<String>,
        source: Option<BoxError>,
    },
}

/// A response for the caller.
struct Done {
    response: Response,
    /// Whether it is taken for the outcome of the operation.
    is_outcome: bool,
}

impl Operation {
    pub(crate) fn new(
        settings: Arc<ClientSettings>,
        mut request: Request,
        stored: &PendingOperation,
        (started, retries): (Instant, Retries),
        origin: OperationOrigin,
    ) -> Self {
        if let Some(value) = key::to_header(&stored.key) {
            request.headers_mut().insert(settings.header.clone(), value);
        }
        Self {
            settings,
            request,
            key: stored.key.clone(),
            has_label: stored.label.is_some(),
            expires_at: stored.expires_at,
            started,
            retries,
            may_be_done: origin != OperationOrigin::New,
            origin,
            was_refused: false,
            attempts: 0,
            last_status: None,
        }
    }

    /// Sends the request until its outcome is known, or until the deadline, and notes the outcome.
    ///
    /// If the future is dropped, the operation stays pending.
    pub(crate) async fn run(
        mut self,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let result = self.attempts(extensions, next).await;
        let store =
            self.settings.pending.clone().filter(|_| self.origin != OperationOrigin::Resumed);
        let Some(store) = store else { return result.map(|done| done.response) };
        let left = self.left();
        match result {
            // The label keeps its key, and the next call or `resume` asks again.
            Ok(done) if self.has_label && !done.is_outcome => Ok(done.response),
            Ok(done) => {
                self.noted(timeout(left, store.finish(&self.key)).await);
                Ok(done.response)
            }
            Err(error) if error.outcome != Outcome::NotDone => Err(error),
            // Otherwise `resume` or another call could still do what is reported as not done.
            Err(error) => match self.noted(timeout(left, store.retract(&self.key)).await) {
                Some(true) => Err(error),
                Some(false) | None => Err(Error { outcome: Outcome::Unknown, ..error }),
            },
        }
    }

    /// What the store has returned, unless it failed.
    fn noted<T>(
        &self,
        result: Result<Result<T, BoxError>, tokio::time::error::Elapsed>,
    ) -> Option<T> {
        let error = match result {
            Ok(Ok(noted)) => return Some(noted),
            Ok(Err(error)) => error,
            Err(elapsed) => elapsed.into(),
        };
        tracing::warn!(
            key = key::short(&self.key),
            error,
            "the outcome of an operation could not be noted; it stays pending"
        );
        None
    }

    /// The time until the deadline.
    fn left(&self) -> Duration {
        self.retries.deadline.saturating_sub(self.started.elapsed())
    }

    async fn attempts(
        &mut self,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Done, Error> {
        loop {
            let limit = self.retries.attempt_timeout.min(self.left());
            // Later, the server could take the request for a new operation.
            if clock::now().checked_add(limit).is_none_or(|end| end > self.expires_at) {
                return Err(self.error(ErrorKind::Expired));
            }
            let Some(request) = self.request.try_clone() else {
                return Err(self.error(ErrorKind::StreamingBody));
            };
            self.attempts += 1;
            let (again, source) = match self.attempt(request, extensions, next.clone(), limit).await
            {
                Attempt::Done(done) => return Ok(done),
                Attempt::Again(again, source) => (again, source),
                Attempt::Ended { kind, reference, source } => {
                    return Err(Error { reference, source, ..self.error(kind) });
                }
            };
            self.may_be_done |= !again.did_not_run;
            let pause = self.retries.pause(self.attempts, again.after);
            if pause >= self.left() {
                return Err(Error { source, ..self.error(ErrorKind::Deadline) });
            }
            tracing::debug!(
                key = key::short(&self.key),
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
        limit: Duration,
    ) -> Attempt {
        let redirects = Redirects::new(&self.settings.allowed_redirects);
        let received = timeout(limit, async {
            let sending = redirects.clone().apply_to(next.run(request, extensions));
            let response = sending.await?;
            self.last_status = Some(response.status());
            Ok(Received::read(response, self.settings.max_response).await?)
        });
        match received.await {
            Err(elapsed) => Attempt::Again(Again::default(), Some(elapsed.into())),
            Ok(Err(error)) => self.failed(error, redirects.was_redirected()),
            Ok(Ok(received)) => {
                let is_elsewhere =
                    *received.url() != *self.request.url() && !redirects.was_redirected();
                self.judge(received, is_elsewhere)
            }
        }
    }

    /// `is_elsewhere`: the client has followed a redirect that the middleware does not allow.
    fn judge(&mut self, received: Received, is_elsewhere: bool) -> Attempt {
        if is_elsewhere {
            tracing::error!(
                key = key::short(&self.key),
                "the client has followed a redirect with an idempotency key; build it with \
                 `ClientIdempotency::client`, or with `redirect_policy`"
            );
        }
        let (status, headers) = (received.status(), received.headers());
        let sent = Sent {
            key: &self.key,
            since_epoch: clock::since_epoch(clock::now()),
            may_be_done: self.may_be_done,
        };
        let is_recorded = is_replay(headers);
        // A redirect leads to a login page, perhaps.
        let is_redirected = is_elsewhere || status.is_redirection();
        match judge(status, headers, received.start(), sent) {
            Meaning::Outcome if is_recorded || !is_elsewhere => self.done(received, true),
            Meaning::Unproven { in_front } if !self.may_be_done && !is_redirected => {
                self.done(received, !in_front)
            }
            Meaning::Again(again) => Attempt::Again(again, None),
            // If the response is the handler's own, the server replays it.
            Meaning::Outcome | Meaning::Unproven { .. } if !self.was_refused => {
                self.was_refused = true;
                Attempt::Again(Again::default(), None)
            }
            Meaning::Outcome | Meaning::Unproven { .. } => {
                Attempt::Ended { kind: ErrorKind::Refused, reference: None, source: None }
            }
            Meaning::NotRun => {
                Attempt::Ended { kind: ErrorKind::Misconfigured, reference: None, source: None }
            }
            Meaning::Unknown { reference } => {
                self.may_be_done = true;
                Attempt::Ended { kind: ErrorKind::Held, reference, source: None }
            }
        }
    }

    fn done(&self, received: Received, is_outcome: bool) -> Attempt {
        let mut response = received.into_response();
        response.extensions_mut().insert(self.key.clone());
        Attempt::Done(Done { response, is_outcome })
    }

    fn failed(&mut self, error: reqwest_middleware::Error, was_redirected: bool) -> Attempt {
        let source = match error {
            reqwest_middleware::Error::Reqwest(error) => {
                // Only a connection that could not be made shows that nothing was received.
                let did_not_run = error.is_connect() && !was_redirected;
                let again = Again { after: None, did_not_run };
                let is_final = error.is_builder() || error.is_redirect();
                let error = error.without_url();
                if !is_final {
                    return Attempt::Again(again, Some(error.into()));
                }
                error.into()
            }
            reqwest_middleware::Error::Middleware(error) => error.into(),
        };
        self.may_be_done = true;
        Attempt::Ended { kind: ErrorKind::Request, reference: None, source: Some(source) }
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
