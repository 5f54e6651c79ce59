//! Marking a request as an idempotent operation.

use std::{
    fmt::Display,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use idempotent_http::Key;
use reqwest::{Body, Response};
use reqwest_middleware::RequestBuilder;
use serde::Serialize;

use crate::{
    error::{Error, ErrorKind},
    key::{self, HEADER},
    marker::{Marker, chosen_key},
};

/// Makes a request an idempotent operation.
pub trait IdempotentRequest {
    /// Makes the request an operation with one key, which every attempt sends. The client must have
    /// the [`ClientIdempotency`](crate::ClientIdempotency) middleware.
    fn idempotent(self) -> IdempotentRequestBuilder;
}

impl IdempotentRequest for RequestBuilder {
    fn idempotent(self) -> IdempotentRequestBuilder {
        IdempotentRequestBuilder { request: self, marker: Marker::default() }
    }
}

/// A request that is an idempotent operation, from
/// [`idempotent`](IdempotentRequest::idempotent).
#[must_use = "a request does nothing until it is sent"]
pub struct IdempotentRequestBuilder {
    request: RequestBuilder,
    marker: Marker,
}

impl IdempotentRequestBuilder {
    /// Names the operation in the application's own terms, such as `order-17`. This needs a store
    /// of [pending operations](crate::ClientIdempotency::pending).
    ///
    /// As long as the server remembers the key, the same label gets the same key, also after a
    /// restart: an application that does not know whether it has already sent a request sends it
    /// again with its label, and gets the first response. For 30 days after that, `SqlitePending`
    /// refuses the label ([`ErrorKind::Expired`]). A label that belongs to another request is
    /// refused too ([`ErrorKind::LabelReused`]).
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.marker.label = Some(label.into());
        self
    }

    /// Sets the key instead of a random one: for an operation that was begun elsewhere, or for a
    /// key that is derived from one. The header of the key does the same.
    ///
    /// The age of the key counts from this call, unless it is [set](Self::begun_at) or the
    /// operation is pending.
    pub fn key(mut self, key: Key) -> Self {
        (self.marker.key, self.marker.is_chosen) = (Some(key), true);
        self
    }

    /// Sets when the key was used first, so that it is not sent after the server may have
    /// forgotten it.
    pub fn begun_at(mut self, at: SystemTime) -> Self {
        self.marker.begun_at = Some(at);
        self
    }

    /// Sets the total time for this operation, with all attempts and pauses.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.marker.deadline = Some(deadline);
        self
    }

    fn map(self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        Self { request: change(self.request), ..self }
    }

    /// Adds a header.
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        HeaderName: TryFrom<N>,
        <HeaderName as TryFrom<N>>::Error: Into<http::Error>,
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
    {
        self.map(|request| request.header(name, value))
    }

    /// Adds headers.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.map(|request| request.headers(headers))
    }

    /// Sets a bearer token. It is not stored with a pending operation.
    pub fn bearer_auth(self, token: impl Display) -> Self {
        self.map(|request| request.bearer_auth(token))
    }

    /// Sets a user name and a password. They are not stored with a pending operation.
    pub fn basic_auth(self, user: impl Display, password: Option<impl Display>) -> Self {
        self.map(|request| request.basic_auth(user, password))
    }

    /// Adds parameters to the URL.
    pub fn query<T: Serialize + ?Sized>(self, parameters: &T) -> Self {
        self.map(|request| request.query(parameters))
    }

    /// Sets a body of JSON.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Self {
        self.map(|request| request.json(body))
    }

    /// Sets a body of form fields.
    pub fn form<T: Serialize + ?Sized>(self, fields: &T) -> Self {
        self.map(|request| request.form(fields))
    }

    /// Sets the body. A stream is refused ([`ErrorKind::StreamingBody`]), because it cannot be sent
    /// again.
    pub fn body(self, body: impl Into<Body>) -> Self {
        self.map(|request| request.body(body))
    }

    /// Sends the request until its outcome is known, and returns the response: the first one, or a
    /// replay of it. A final response with status 4xx or 5xx is returned too, such as 402. The
    /// [`Key`] is an extension of the response.
    ///
    /// # Errors
    /// Fails if the outcome did not become known, and says whether the operation
    /// [may have been done](Error::outcome).
    ///
    /// # Cancel safety
    /// If the future is dropped, the operation may have been done. With a store it stays pending.
    pub async fn send(self) -> Result<Response, Error> {
        let Self { mut request, mut marker } = self;
        let mut extensions = std::mem::take(request.extensions());
        let (client, request) = request.build_split();
        let outcome = marker.outcome_before();
        let mut request = request.map_err(|error| {
            Error { outcome, ..Error::before(ErrorKind::Request, marker.key.clone()) }
                .caused_by(error)
        })?;
        if let Some(key) = chosen_key(request.headers(), &HEADER)? {
            marker = marker.choose(key)?;
        }
        let key = marker.key.get_or_insert_with(key::random).clone();
        // For a client without the middleware; the middleware sets its own header.
        if let Some(value) = key::to_header(&key) {
            request.headers_mut().insert(HEADER, value);
        }
        extensions.insert(marker.clone());
        let sent = client.execute_with_extensions(request, &mut extensions).await;
        marker.result(key, sent)
    }
}
