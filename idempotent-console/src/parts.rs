//! What the pages and the API work with.

use std::sync::Arc;

use idempotent_actix::{Idempotency, store::Administrator};

use crate::counts::RequestCounts;

/// The store, and what is shown of it. Clones share everything.
#[derive(Clone)]
pub(crate) struct ConsoleParts {
    pub(crate) idempotency: Idempotency,
    pub(crate) administrator: Administrator,
    /// Whether the bodies of recorded responses are shown.
    pub(crate) shows_bodies: bool,
    pub(crate) counts: Arc<RequestCounts>,
}
