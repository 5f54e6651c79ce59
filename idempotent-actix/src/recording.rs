//! An answer and its recording.

use std::{
    collections::VecDeque,
    error::Error as StdError,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    dev::ResponseHead,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
    rt,
};
use bytes::Bytes;
use idempotent_core::{EncodedRecording, RecordedBody, Recording};

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

/// The header lines that are replayed: raw, and in the order in which the response holds them.
fn replayed_lines(head: &ResponseHead) -> Vec<(&[u8], &[u8])> {
    let headers = head.headers();
    let named: Vec<_> = headers
        .get_all(header::CONNECTION)
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect();
    headers
        .iter()
        .filter(|(name, _)| is_replayed(name.as_str()) && !named.iter().any(|n| n == name.as_str().as_bytes()))
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        .collect()
}

/// Encodes a response, within `limit` bytes of headers and body together: beyond it the body is omitted, and the headers too if they
/// alone exceed it.
fn encode(head: &ResponseHead, body: RecordedBody, limit: usize) -> EncodedRecording {
    let mut lines = replayed_lines(head);
    let bytes: usize = lines.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
    if bytes > limit {
        lines.clear();
    }
    let whole = match body {
        RecordedBody::None | RecordedBody::Omitted => bytes <= limit,
        RecordedBody::Whole(ref body) => bytes.saturating_add(body.len()) <= limit,
    };
    EncodedRecording::new(head.status.as_u16(), &lines, if whole { &body } else { &RecordedBody::Omitted })
}

/// How much of a response is kept, and how long its recording may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of headers and body.
    pub(crate) bytes: usize,
    /// How long a stream may take to end.
    pub(crate) time: Duration,
}

/// Records a response and gives it back whole.
///
/// A body within the limits is kept. Of a larger one, of a stream that does not end in time, and of server-sent events only status and
/// headers are kept; the response still goes out in full, and what was read of a stream is put back in front of it.
///
/// # Errors
/// When the body itself fails within the limits: there is no response to keep.
pub(crate) fn record(
    response: HttpResponse,
    limits: Limits,
) -> impl Future<Output = Result<(EncodedRecording, HttpResponse), Box<dyn StdError>>> {
    // Before the future begins, which would have room for the whole as well as for its parts.
    let (head, body) = response.into_parts();
    async move {
        let (kept, body) = match body.size() {
            BodySize::None => (RecordedBody::None, body),
            BodySize::Sized(size) if usize::try_from(size).is_ok_and(|size| size <= limits.bytes) => {
                take(body, limits).await?
            }
            BodySize::Stream if !is_event_stream(head.head()) => take(body, limits).await?,
            BodySize::Sized(_) | BodySize::Stream => (RecordedBody::Omitted, body),
        };
        let recording = encode(head.head(), kept, limits.bytes);
        Ok((recording, head.set_body(body)))
    }
}

/// Server-sent events (`text/event-stream`, HTML Living Standard §9.2) usually have no end, and clients wait for the first of them.
fn is_event_stream(head: &ResponseHead) -> bool {
    let content_type = head.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

async fn take(body: BoxBody, limits: Limits) -> Result<(RecordedBody, BoxBody), Box<dyn StdError>> {
    match body.try_into_bytes() {
        Ok(bytes) => Ok((RecordedBody::Whole(bytes.clone()), BoxBody::new(bytes))),
        // Boxed: keeps the caller's future small where the body is there already.
        Err(body) => Box::pin(read(body, limits)).await,
    }
}

async fn read(mut body: BoxBody, limits: Limits) -> Result<(RecordedBody, BoxBody), Box<dyn StdError>> {
    let promised = body.size();
    let (mut chunks, mut length) = (Pieces::default(), 0usize);
    let mut over = pin!(rt::time::sleep(limits.time));
    loop {
        // A stream that is always ready does not keep the thread.
        tokio::task::coop::consume_budget().await;
        let chunk = poll_fn(|cx| match over.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut body).poll_next(cx).map(Some),
        });
        let Some(chunk) = chunk.await else { break };
        let Some(chunk) = chunk.transpose()? else {
            // Sent as it is, half a response would look whole to its client and to all that come after.
            if let BodySize::Sized(size) = promised
                && u64::try_from(length) != Ok(size)
            {
                return Err("it has another length than it says".into());
            }
            let whole = chunks.joined();
            return Ok((RecordedBody::Whole(whole.clone()), BoxBody::new(whole)));
        };
        length = length.saturating_add(chunk.len());
        chunks.push(chunk);
        if length > limits.bytes {
            break;
        }
    }
    chunks.join_small();
    Ok((RecordedBody::Omitted, BoxBody::new(Resumed { chunks: chunks.chunks, body })))
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
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    match recording.body {
        RecordedBody::None => Some(response.set_body(BoxBody::new(actix_web::body::None::new()))),
        RecordedBody::Whole(bytes) => Some(response.set_body(BoxBody::new(bytes))),
        RecordedBody::Omitted => {
            response.headers_mut().insert(REPLAY, HeaderValue::from_static("omitted"));
            Some(response)
        }
    }
}
