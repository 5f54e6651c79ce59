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

use std::borrow::Cow;

use actix_web::http::header::{HeaderName, HeaderValue};
pub use idempotent_http::dialect::{
    Dialect, Endpoint, InvalidToken, Marker, ProblemForm, ProblemShape, Token,
};
use idempotent_http::header_names;

/// A dialect, with its headers as actix-web has them.
pub(crate) struct Spoken {
    pub(crate) dialect: Dialect,
    /// The header that marks a replay, and its value.
    pub(crate) marker: (HeaderName, HeaderValue),
    pub(crate) expiry: Option<HeaderName>,
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
