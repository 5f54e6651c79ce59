//! Why a request has no valid key.

use super::KeyHeaderError;

/// The reason why a request has no valid key, as the end of a sentence that begins with the place.
/// The messages may be shown to the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// The key is not valid.
    #[error("is invalid: {0}")]
    Invalid(#[from] KeyHeaderError),
    /// The application's [rule](super::KeyRule) refuses the key.
    #[error("is invalid: {0}")]
    Refused(String),
    /// The request has several keys.
    #[error("is invalid: the request has more than one key")]
    Repeated,
    /// The member of the JSON body has another type.
    #[error("is invalid: the key is neither a string nor an integer")]
    WrongType,
    /// The body has another type than that of a form.
    #[error("cannot be read: the body is not a form (application/x-www-form-urlencoded)")]
    NotAForm,
    /// The body is not JSON.
    #[error("cannot be read: the body is not valid JSON")]
    NotJson,
    /// The body is compressed or otherwise encoded (RFC 9110 §8.4).
    #[error("cannot be read: the body has a Content-Encoding; send the body without one")]
    Encoded,
}
