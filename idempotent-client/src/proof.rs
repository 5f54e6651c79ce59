//! The mark with which the guard of a server proves that a request was not run.

use http::HeaderMap;
use idempotent_http::{Key, header_names, not_run_mark};

/// Whether the server has proved that the request with this key was not run.
///
/// The mark belongs to the key: that of another service, whose response was passed on, belongs to
/// another key.
pub(crate) fn is_not_run(headers: &HeaderMap, key: &Key) -> bool {
    let mark = headers.get(header_names::NOT_RUN);
    mark.is_some_and(|value| value.as_bytes() == not_run_mark(key).as_bytes())
}
