//! One operation: its attempts, until its outcome is known.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

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
    settings::{Call, Settings},
    verdict::{Again, Verdict, is_replay, judge},
};

/// An operation with its key.
pub(crate) struct Operation {
    call: Call,
    settings: Arc<Settings>,
    request: Request,
    key: Key,
    expires_at: SystemTime,
    retries: Retries,
    origin: Origin,
    /// Whether an attempt may have been run.
    may_be_done: bool,
    /// Whether an attempt got a response that says nothing about earlier ones.
    was_refused: bool,
    attempts: u32,
    last_status: Option<StatusCode>,
}

/// Where an operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It begins here.
    New,
    /// It may have been begun earlier, perhaps by another process.
    Known,
    /// As above; who resumes it notes its outcome.
    Resumed,
    /// Its outcome was known before, and only its response is wanted.
    Finished,
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
    pub(crate) fn new(
        settings: Arc<Settings>,
        mut request: Request,
        stored: &PendingOperation,
        retries: Retries,
        origin: Origin,
    ) -> Self {
        if let Some(value) = stored.key.to_header() {
            request.headers_mut().insert(settings.header.clone(), value);
        }
        Self {
            call: settings.start_call(&stored.key),
            settings,
            request,
            key: stored.key.clone(),
            expires_at: stored.expires_at,
            retries,
            may_be_done: origin != Origin::New,
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
        let Some(store) = self.settings.pending.clone().filter(|_| self.origin != Origin::Resumed)
        else {
            return result;
        };
        let _noting = self.settings.noting.lock().await;
        let (result, noted) = match result {
            Ok(response) => (Ok(response), store.finish(&self.key).await),
            Err(error) if error.outcome != Outcome::NotDone => (Err(error), Ok(())),
            // Another call with this key may do it.
            Err(error) if !self.call.is_alone() => {
                (Err(Error { outcome: Outcome::Unknown, ..error }), Ok(()))
            }
            // Otherwise `resume` could still do what is reported as not done.
            Err(error) => match store.forget(&self.key).await {
                Ok(()) => (Err(error), Ok(())),
                Err(source) => (Err(Error { outcome: Outcome::Unknown, ..error }), Err(source)),
            },
        };
        if let Err(error) = noted {
            tracing::warn!(
                key = self.key.short(),
                error,
                "the outcome of an operation could not be noted; it stays pending"
            );
        }
        result
    }

    async fn attempts(
        &mut self,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let started = Instant::now();
        loop {
            let left = self.retries.deadline.saturating_sub(started.elapsed());
            let limit = self.retries.attempt_timeout.min(left);
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
                Attempt::Done(response) => return Ok(response),
                Attempt::Again(again, source) => (again, source),
                Attempt::Ended { kind, reference, source } => {
                    return Err(Error { reference, source, ..self.error(kind) });
                }
            };
            self.may_be_done |= !again.did_not_run;
            let pause = self.retries.pause(self.attempts, again.after);
            if pause >= self.retries.deadline.saturating_sub(started.elapsed()) {
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
        limit: Duration,
    ) -> Attempt {
        let url = request.url().clone();
        let received = timeout(limit, async {
            let response = next.run(request, extensions).await?;
            self.last_status = Some(response.status());
            Ok(Received::read(response, self.settings.max_response).await?)
        });
        match received.await {
            Err(elapsed) => Attempt::Again(Again::default(), Some(elapsed.into())),
            Ok(Err(error)) => self.failed(error),
            Ok(Ok(received)) => {
                let (status, headers) = (received.status(), received.headers());
                let now = clock::since_epoch(clock::now());
                let is_open = self.may_be_done && self.origin != Origin::Finished;
                let verdict = judge(status, headers, received.start(), now, is_open);
                // A login page, perhaps.
                let is_elsewhere = is_open && *received.url() != url && !is_replay(headers);
                match verdict {
                    Verdict::Definitive if !is_elsewhere => {
                        let mut response = received.into_response();
                        response.extensions_mut().insert(self.key.clone());
                        Attempt::Done(response)
                    }
                    Verdict::Again(again) => Attempt::Again(again, None),
                    // If the response is the handler's own, the server replays it.
                    Verdict::Refused | Verdict::Definitive if !self.was_refused => {
                        self.was_refused = true;
                        Attempt::Again(Again::default(), None)
                    }
                    Verdict::Refused | Verdict::Definitive => {
                        Attempt::Ended { kind: ErrorKind::Refused, reference: None, source: None }
                    }
                    Verdict::Unknown { reference } => {
                        self.may_be_done = true;
                        Attempt::Ended { kind: ErrorKind::Held, reference, source: None }
                    }
                }
            }
        }
    }

    fn failed(&mut self, error: reqwest_middleware::Error) -> Attempt {
        let source = match error {
            reqwest_middleware::Error::Reqwest(error) => {
                // Only a connection that could not be made shows that nothing was received.
                let again = Again { after: None, did_not_run: error.is_connect() };
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
