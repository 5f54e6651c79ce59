//! The authenticated user: the bearer of an API key.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpRequest, dev::Payload, http::header::AUTHORIZATION};
use idempotent_actix::scope::{ScopeId, ScopeKey};

use crate::error::ApiError;

/// The user of `Authorization: Bearer sk_test_NAME`. The key is not verified; a real server would
/// look it up.
pub(crate) struct User {
    name: String,
}

impl User {
    /// The user with this name.
    pub(crate) const fn named(name: String) -> Self {
        Self { name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Each user has separate idempotency keys.
impl ScopeKey for User {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.name.as_str()))
    }
}

impl FromRequest for User {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(authenticate(request))
    }
}

fn authenticate(request: &HttpRequest) -> Result<User, ApiError> {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = header.and_then(bearer) else {
        return Err(ApiError::unauthorized(
            "You did not provide an API key: send `Authorization: Bearer sk_test_NAME`.",
        ));
    };
    match token.strip_prefix("sk_test_") {
        Some(name)
            if !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') =>
        {
            Ok(User { name: name.to_owned() })
        }
        _ => Err(ApiError::unauthorized(
            "Invalid API key provided: it must be `sk_test_` and a name.",
        )),
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
