//! The settings of a client.

use std::{sync::Arc, time::Duration};

use http::HeaderName;
use reqwest::Url;

use crate::{
    key::HEADER,
    pending::{PendingStore, StoredRequest},
    retries::Retries,
    specification::Specification,
};

#[derive(Clone)]
pub(crate) struct ClientSettings {
    pub(crate) header: HeaderName,
    pub(crate) retries: Retries,
    pub(crate) ttl: Duration,
    pub(crate) specification: Option<Specification>,
    pub(crate) max_response: usize,
    pub(crate) pending: Option<Arc<dyn PendingStore>>,
    /// Other origins to which a request may be redirected.
    pub(crate) allowed_redirects: Vec<Url>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            header: HEADER,
            retries: Retries::DEFAULT,
            ttl: Duration::from_secs(24 * 60 * 60),
            specification: None,
            max_response: 8 * 1024 * 1024,
            pending: None,
            allowed_redirects: Vec::new(),
        }
    }
}

impl ClientSettings {
    /// How long the server remembers the key of a request.
    pub(crate) fn ttl_of(&self, request: &StoredRequest) -> Duration {
        let published = self.specification.as_ref();
        published
            .and_then(|published| published.ttl(request.method.as_str(), &request.url))
            .unwrap_or(self.ttl)
    }
}
