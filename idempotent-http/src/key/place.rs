//! The places of a key in a request.

use std::fmt;

use super::{fault::KeyFault, form, json};

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
