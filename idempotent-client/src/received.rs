//! Responses that are read before they are returned.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use reqwest::{Body, Response, ResponseBuilderExt, Url};

/// A response whose body was read, or the start of its body if it is long.
pub(crate) struct Received {
    response: Response,
    start: Bytes,
    is_complete: bool,
}

impl Received {
    /// Reads the body, up to a limit. Fails if it breaks off before that.
    pub(crate) async fn read(mut response: Response, limit: usize) -> Result<Self, reqwest::Error> {
        let mut start = BytesMut::new();
        while start.len() <= limit {
            match response.chunk().await? {
                Some(chunk) => start.extend_from_slice(&chunk),
                None => return Ok(Self { response, start: start.freeze(), is_complete: true }),
            }
        }
        Ok(Self { response, start: start.freeze(), is_complete: false })
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The URL of the response, which is another one after a redirect.
    pub(crate) fn url(&self) -> &Url {
        self.response.url()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The body, or its start.
    pub(crate) fn start(&self) -> &Bytes {
        &self.start
    }

    /// The response as it was received.
    pub(crate) fn into_response(self) -> Response {
        let Self { mut response, start, is_complete } = self;
        let mut head = http::Response::new(());
        *head.status_mut() = response.status();
        *head.version_mut() = response.version();
        *head.headers_mut() = std::mem::take(response.headers_mut());
        let url = response.url().clone();
        let extensions = std::mem::take(response.extensions_mut());
        let (mut parts, ()) = head.into_parts();
        parts.extensions = extensions;
        let body = if is_complete {
            Body::from(start)
        } else {
            let start = stream::once(async { Ok(start) });
            Body::wrap_stream(start.chain(response.bytes_stream()))
        };
        let mut builder = http::Response::builder().url(url);
        if let Some(with_url) = builder.extensions_mut() {
            parts.extensions.extend(std::mem::take(with_url));
        }
        Response::from(http::Response::from_parts(parts, body))
    }
}
