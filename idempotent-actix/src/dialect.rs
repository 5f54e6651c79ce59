//! Dialects: how the application speaks of idempotency, as one value.
//!
//! [`IdempotencyBuilder::dialect`](crate::IdempotencyBuilder::dialect) sets the dialect. The guide
//! [Dialects](crate::guide::dialects) has what each supplied one does.
//!
//! # Examples
//!
//! ```
//! use idempotent_actix::{
//!     Idempotency,
//!     dialect::{Dialect, Token},
//!     store::MemoryStore,
//! };
//!
//! /// That of Stripe, with a header of our own.
//! fn of_our_api() -> Dialect {
//!     let mut dialect = Dialect::stripe();
//!     dialect.expiry_header = Some(Token::from_static("x-key-expires"));
//!     dialect
//! }
//!
//! let idempotency = Idempotency::builder(MemoryStore::new()).dialect(of_our_api()).build();
//! # let _ = idempotency;
//! ```

use std::{
    borrow::Cow,
    time::{Duration, UNIX_EPOCH},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{HeaderName, HeaderValue, HttpDate},
};
use idempotent_core::{Key, RecordId};
pub use idempotent_http::dialect::{
    Dialect, Endpoint, InvalidToken, Marker, ProblemForm, ProblemShape, Token,
};
use idempotent_http::{header_names, key::header_value};

use crate::idempotency::Idempotency;

/// A dialect, with its headers as actix-web has them.
pub(crate) struct Spoken {
    pub(crate) dialect: Dialect,
    /// The header that marks a replay, and its value.
    pub(crate) marker: (HeaderName, HeaderValue),
    expiry: Option<HeaderName>,
}

impl Spoken {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let value = HeaderValue::from_str(dialect.replay_marker.value.as_str());
        let value = value.unwrap_or(HeaderValue::from_static("true"));
        let marker = (name_of(&dialect.replay_marker.name, header_names::REPLAYED), value);
        let expiry = dialect.expiry_header.as_ref();
        let expiry = expiry.map(|name| name_of(name, "idempotency-expires"));
        Self { dialect, marker, expiry }
    }

    /// The name of the header with the key.
    pub(crate) fn key_header(&self) -> HeaderName {
        name_of(&self.dialect.key_header, header_names::KEY)
    }

    /// Whether responses say until when their key is remembered.
    pub(crate) fn sends_expiry(&self) -> bool {
        self.expiry.is_some()
    }

    /// The name of an operation in its record ids.
    pub(crate) fn record_name<'a>(&self, name: &'a str, path: &str) -> Cow<'a, str> {
        match self.dialect.endpoint {
            Endpoint::Pattern => name.into(),
            Endpoint::Path => [name, " ", path].concat().into(),
        }
    }
}

/// A token is the name of a header, so the other name is never used.
fn name_of(token: &Token, other: &'static str) -> HeaderName {
    let name = HeaderName::from_bytes(token.as_str().as_bytes());
    name.unwrap_or(HeaderName::from_static(other))
}

impl Idempotency {
    /// Adds the key of the request to a response, if the dialect does so: as it was sent, or as it
    /// would be sent if it was not in the header.
    pub(crate) fn echo_key(
        &self,
        request: &HttpRequest,
        key: Option<&Key>,
        response: &mut HttpResponse,
    ) {
        let (settings, spoken) = (self.settings(), &self.settings().spoken);
        if !spoken.dialect.echoes_key {
            return;
        }
        let mut lines = request.headers().get_all(&settings.header);
        let sent = match (lines.next(), lines.next()) {
            (Some(line), None) => Some(line.clone()),
            _ => key.and_then(|key| HeaderValue::from_str(&header_value(key)).ok()),
        };
        if let Some(sent) = sent {
            response.headers_mut().insert(spoken.key_header(), sent);
        }
    }

    /// Adds to a response until when its key is remembered, if the dialect does so and there is a
    /// record.
    pub(crate) async fn add_expiry(&self, id: &RecordId, response: &mut HttpResponse) {
        let Some(name) = &self.settings().spoken.expiry else { return };
        let found = self.runtime().look_up(id).await.inspect_err(|error| {
            let id = id.short();
            tracing::warn!(%id, %error, "reading when a key expires failed; it is not sent");
        });
        let Ok(Some(found)) = found else { return };
        let expires = UNIX_EPOCH
            .checked_add(Duration::from_millis(found.record.expires_at.as_millis()))
            .and_then(|time| HeaderValue::from_str(&HttpDate::from(time).to_string()).ok());
        if let Some(expires) = expires {
            response.headers_mut().insert(name.clone(), expires);
        }
    }

    /// Whether a request needs a key, by the attribute and the dialect.
    pub(crate) fn requires_key(&self, request: &HttpRequest, attribute: bool) -> bool {
        let dialect = &self.settings().spoken.dialect;
        dialect.requires_key(request.method().as_str(), attribute)
    }
}
