//! Who asks, and from where.

use actix_web::{
    Error, FromRequest, HttpMessage as _, HttpRequest, dev::Payload, error::ErrorForbidden,
};
use futures_util::future::{Ready, ready};

use crate::access::Access;

/// Who asks, and where the console is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) access: Access,
    /// The way from the requested page up to the root of the console: `./`, `../`, ….
    pub(crate) base: String,
    /// Whether the request is one to the JSON API.
    pub(crate) is_api: bool,
    /// Whether the request was made by one of the pages of this server, as the browser says.
    pub(crate) is_same_origin: bool,
}

impl Visit {
    pub(crate) fn may_act(&self) -> bool {
        matches!(self.access, Access::Act(_))
    }
}

/// The visit of a request that has entered.
impl FromRequest for Visit {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let visit = request.extensions().get::<Self>().cloned();
        ready(visit.ok_or_else(|| ErrorForbidden("this request did not enter the console")))
    }
}
