//! An answer and its recording.

use std::{
    collections::VecDeque,
    error::Error as StdError,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    dev::ResponseHead,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};
use bytes::Bytes;
use idempotent_core::{Body, Encoded, Recording};

use crate::request::Pieces;

/// Marks a replayed answer; its value is `true`.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Marks a replay whose body was too large to keep; its value is `omitted`.
pub(crate) const REPLAY: HeaderName = HeaderName::from_static("idempotency-replay");

/// Headers that belong to one connection, one moment or one client are never replayed, whoever set them.
fn is_replayed(name: &str) -> bool {
    let never = matches!(
        name,
        "alt-svc"
            | "authentication-info"
            | "clear-site-data"
            | "connection"
            | "content-length"
            | "date"
            | "idempotency-replay"
            | "idempotency-replayed"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-connection"
            | "server"
            | "server-timing"
            | "set-cookie"
            | "set-cookie2"
            | "strict-transport-security"
            | "te"
            | "traceparent"
            | "tracestate"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "www-authenticate"
    );
    !never && !["access-control-", "ratelimit", "x-ratelimit"].iter().any(|family| name.starts_with(family))
}

/// Writes an answer down, with the header lines to replay: raw, and in the order in which the response holds them.
fn encode(head: &ResponseHead, body: &Body) -> Encoded {
    let headers = head.headers();
    let named: Vec<_> = headers
        .get_all(header::CONNECTION)
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect();
    let lines: Vec<_> = headers
        .iter()
        .filter(|(name, _)| is_replayed(name.as_str()) && !named.iter().any(|n| n == name.as_str().as_bytes()))
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        .collect();
    Encoded::new(head.status.as_u16(), &lines, body)
}

/// Takes an answer down and gives it back whole.
///
/// A body of up to `limit` bytes is kept. Of a larger one only status and headers are kept; the answer still goes out in full, and
/// what was read of a stream is put back in front of it.
///
/// # Errors
/// When the body itself fails within the limit: there is no answer to keep.
pub(crate) fn record(
    response: HttpResponse,
    limit: usize,
) -> impl Future<Output = Result<(Encoded, HttpResponse), Box<dyn StdError>>> {
    // Before the future begins, which would have room for the whole as well as for its parts.
    let (head, body) = response.into_parts();
    async move {
        let (kept, body) = match body.size() {
            BodySize::None => (Body::None, body),
            BodySize::Sized(size) if usize::try_from(size).is_ok_and(|size| size <= limit) => take(body, limit).await?,
            BodySize::Sized(_) => (Body::Omitted, body),
            BodySize::Stream => take(body, limit).await?,
        };
        let recording = encode(head.head(), &kept);
        Ok((recording, head.set_body(body)))
    }
}

async fn take(body: BoxBody, limit: usize) -> Result<(Body, BoxBody), Box<dyn StdError>> {
    match body.try_into_bytes() {
        Ok(bytes) => Ok((Body::Whole(bytes.clone()), BoxBody::new(bytes))),
        // Apart, so that answers that are there do not carry what it takes.
        Err(body) => Box::pin(read(body, limit)).await,
    }
}

async fn read(mut body: BoxBody, limit: usize) -> Result<(Body, BoxBody), Box<dyn StdError>> {
    let promised = body.size();
    let (mut chunks, mut length) = (Pieces::default(), 0usize);
    while let Some(chunk) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        let chunk = chunk?;
        length = length.saturating_add(chunk.len());
        chunks.push(chunk);
        if length > limit {
            chunks.join_small();
            return Ok((Body::Omitted, BoxBody::new(Resumed { chunks: chunks.chunks, body })));
        }
    }
    // Sent as it is, half an answer would look whole to its client and to all that come after.
    if let BodySize::Sized(size) = promised
        && u64::try_from(length) != Ok(size)
    {
        return Err("it has another length than it says".into());
    }
    let whole = chunks.joined();
    Ok((Body::Whole(whole.clone()), BoxBody::new(whole)))
}

/// A stream with what was read of it put back in front.
struct Resumed {
    chunks: VecDeque<Bytes>,
    body: BoxBody,
}

impl MessageBody for Resumed {
    type Error = Box<dyn StdError>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        match self.chunks.pop_front() {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None => Pin::new(&mut self.body).poll_next(cx),
        }
    }
}

/// Makes the answer anew from its recording, marked as a replay; `None` when it is not one that HTTP allows.
pub(crate) fn replay(recording: Recording) -> Option<HttpResponse> {
    let mut response = HttpResponse::new(StatusCode::from_u16(recording.status).ok()?);
    let headers = response.headers_mut();
    for (name, value) in recording.headers {
        let value = HeaderValue::from_maybe_shared(value).ok()?;
        headers.append(HeaderName::from_bytes(&name).ok()?, value);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    match recording.body {
        Body::None => Some(response.set_body(BoxBody::new(actix_web::body::None::new()))),
        Body::Whole(bytes) => Some(response.set_body(BoxBody::new(bytes))),
        Body::Omitted => {
            response.headers_mut().insert(REPLAY, HeaderValue::from_static("omitted"));
            Some(response)
        }
    }
}
