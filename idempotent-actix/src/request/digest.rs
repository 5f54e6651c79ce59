//! Computes the digest of a request, which becomes its fingerprint once it is signed.

use actix_web::{
    HttpRequest,
    http::header::{self, HeaderValue},
};
use idempotent_core::{Digester, RequestDigest};
use idempotent_http::digest::{BodyForm, JsonPart, RequestParts};

use super::{RequestContent, body_buffer::BodyBuffer};
use crate::declaration::markers::HeadForm;

impl HeadForm {
    /// A digester that has hashed the head of the request.
    pub(super) fn digester(self, request: &HttpRequest, form: BodyForm) -> Digester {
        self.with_parts(request, |parts| parts.digester(form))
    }

    /// The digest of a request with its canonical JSON, or a part of it.
    pub(crate) fn digest_of_json(
        self,
        request: &HttpRequest,
        body: &[u8],
        part: Option<JsonPart<'static>>,
    ) -> RequestDigest {
        self.with_parts(request, |parts| parts.digest_of_json(body, part))
    }

    fn with_parts<T>(self, request: &HttpRequest, read: impl FnOnce(RequestParts<'_>) -> T) -> T {
        let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
        read(RequestParts {
            method: request.method().as_str(),
            path: &path_values(request),
            query: &self.query.of(request.query_string()),
            content_type: &self.content_type.of(header(header::CONTENT_TYPE).unwrap_or_default()),
            content_encoding: header(header::CONTENT_ENCODING),
        })
    }

    /// The content of a request whose body has been read. `raw` has hashed the body, if its bytes
    /// count as sent.
    pub(super) fn content(
        self,
        form: BodyForm,
        request: &HttpRequest,
        raw: Option<Digester>,
        body: &mut BodyBuffer,
    ) -> RequestContent {
        match (form, raw) {
            (_, Some(raw)) => RequestContent::Digest(raw.finish()),
            (BodyForm::Custom | BodyForm::JsonPart(_), None) => RequestContent::Body(body.joined()),
            (BodyForm::Ignored, None) => {
                RequestContent::Digest(self.digester(request, form).finish())
            }
            (BodyForm::Json | BodyForm::Raw, None) => {
                RequestContent::Digest(self.digest_of_json(request, &body.joined(), None))
            }
        }
    }
}

/// What the path says beyond the pattern of its route: the values of the dynamic segments, what no
/// pattern has matched, and which characters are percent-encoded. The record id contains the
/// pattern, or else the operation's `name`, with which a route can be renamed while its requests
/// are sent again.
fn path_values(request: &HttpRequest) -> String {
    let path = request.match_info();
    let mut values = String::new();
    for (_, value) in path.iter() {
        values.extend([&*value.len().to_string(), ":", value]);
    }
    values.push_str(path.unprocessed());
    // The values are decoded in part.
    let raw = request.path();
    let encoded = raw.match_indices('%').filter_map(|(at, _)| raw.get(at..at.checked_add(3)?));
    values.extend(encoded);
    values
}
