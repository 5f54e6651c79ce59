//! Who asks, and what they may do.

use actix_web::{Error, HttpRequest};
use futures_util::future::LocalBoxFuture;

/// Who asks, and what they may do. The application's function returns it for each request; see
/// [`Console::new`](crate::Console::new).
///
/// The name is shown on each page, and the log of decisions keeps it: up to 255 bytes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: the response is 403.
    None,
    /// They may look at everything, except for the bodies of recorded responses unless the console
    /// [shows](crate::Console::show_bodies) them.
    Read(String),
    /// They may also decide: resolve, release and forget keys.
    Act(String),
}

impl Access {
    /// The name; `None` if there is no access.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Read(name) | Self::Act(name) => Some(name),
        }
    }
}

/// The function of the application that says who asks.
pub(crate) type Who =
    dyn Fn(HttpRequest) -> LocalBoxFuture<'static, Result<Access, Error>> + Send + Sync;
