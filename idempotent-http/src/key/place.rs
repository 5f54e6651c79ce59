//! The places of a key in a request.

use std::fmt;

use super::{KeyHeaderError, form, json};

/// The place of the key in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A request header, by its name in lower case.
    Header(&'static str),
    /// A field of a body of the type `application/x-www-form-urlencoded`.
    Form(&'static str),
    /// A member of a JSON body, by its JSON pointer (RFC 6901).
    Json(&'static str),
}

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

impl KeyPlace {
    /// Reads the text of the key from the body. `None`: there is no key, as in an empty body. The
    /// key of [`Header`](Self::Header) is not in the body.
    ///
    /// `media_type` is that of `Content-Type`, without parameters, and `encodings` are the lines of
    /// `Content-Encoding`.
    ///
    /// # Errors
    /// Fails if the body is encoded or of another type, or if the key is there twice.
    pub fn read<'a>(
        self,
        body: &[u8],
        media_type: &str,
        encodings: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<String>, KeyFault> {
        let mut encodings = encodings.into_iter();
        match self {
            Self::Header(_) => Ok(None),
            Self::Form(_) | Self::Json(_) if body.is_empty() => Ok(None),
            Self::Form(_) | Self::Json(_)
                if encodings.any(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) =>
            {
                Err(KeyFault::Encoded)
            }
            Self::Form(field) if media_type.eq_ignore_ascii_case(form::MEDIA_TYPE) => {
                form::field(body, field)
            }
            Self::Form(_) => Err(KeyFault::NotAForm),
            Self::Json(pointer) => json::member(body, pointer),
        }
    }

    /// Returns the place in the words of the specification and of the attribute's `key_from`, such
    /// as `json:/id`.
    #[must_use]
    pub fn specified(self) -> String {
        match self {
            Self::Header(name) => format!("header:{name}"),
            Self::Form(field) => format!("form:{field}"),
            Self::Json(pointer) => format!("json:{pointer}"),
        }
    }
}

/// Writes the place in the words of a problem, as in "The … is invalid".
impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header {name}"),
            Self::Form(field) => write!(f, "form field `{field}`"),
            Self::Json(pointer) => write!(f, "JSON member `{pointer}`"),
        }
    }
}
