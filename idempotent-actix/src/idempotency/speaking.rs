//! What responses say in the dialect of the application.

use std::time::{Duration, UNIX_EPOCH};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{HeaderValue, HttpDate},
};
use idempotent_core::{Key, RecordId};
use idempotent_http::key::header_value;

use super::Idempotency;

impl Idempotency {
    /// Adds the key of the request to a response, if the dialect does so: as it was sent, or as it
    /// would be sent if it was not in the header.
    pub(crate) fn echo_key(
        &self,
        request: &HttpRequest,
        key: Option<&Key>,
        response: &mut HttpResponse,
    ) {
        let (settings, spoken) = (self.settings(), &self.settings().spoken);
        if !spoken.dialect.echoes_key {
            return;
        }
        let mut lines = request.headers().get_all(&settings.header);
        let sent = match (lines.next(), lines.next()) {
            (Some(line), None) => Some(line.clone()),
            _ => key.and_then(|key| HeaderValue::from_str(&header_value(key)).ok()),
        };
        if let Some(sent) = sent {
            response.headers_mut().insert(spoken.key_header(), sent);
        }
    }

    /// Adds to a response until when its key is remembered, if the dialect does so and there is a
    /// record.
    pub(crate) async fn add_expiry(&self, id: &RecordId, response: &mut HttpResponse) {
        let Some(name) = &self.settings().spoken.expiry else { return };
        let found = self.runtime().look_up(id).await.inspect_err(|error| {
            let id = id.short();
            tracing::warn!(%id, %error, "reading when a key expires failed; it is not sent");
        });
        let Ok(Some(found)) = found else { return };
        let expires = UNIX_EPOCH
            .checked_add(Duration::from_millis(found.record.expires_at.as_millis()))
            .and_then(|time| HeaderValue::from_str(&HttpDate::from(time).to_string()).ok());
        if let Some(expires) = expires {
            response.headers_mut().insert(name.clone(), expires);
        }
    }

    /// Whether a request needs a key, by the attribute and the dialect.
    pub(crate) fn requires_key(&self, request: &HttpRequest, attribute: bool) -> bool {
        let dialect = &self.settings().spoken.dialect;
        dialect.requires_key(request.method().as_str(), attribute)
    }
}
