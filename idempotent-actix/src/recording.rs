//! Recorded responses.
//!
//! The guard records a response before it is sent, and replays the recording to later requests with
//! the same key. Applications need this module to resolve a held key with
//! [`Idempotency::resolve`](crate::Idempotency::resolve): [`from_response`] makes the recording; and
//! for responses with a secret that is shown once: [`WithoutBody`].

use std::{
    error::Error as StdError,
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{self, BodySize, BoxBody, MessageBody},
    dev::ResponseHead,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
    rt,
};
use bytes::Bytes;
pub use idempotent_core::{EncodedRecording, RecordingError};
pub use idempotent_http::recording::{RecordedBody, Recording, TraceContext};
use idempotent_http::{header_names, recording};

pub use self::redaction::WithoutBody;
pub(crate) use self::redaction::{Redact, redacted};
use crate::chunks::Chunks;

mod redaction;

/// Marks a replayed response; its value is `true`.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static(header_names::REPLAYED);
/// Marks a replay that is not the first client's response; its value is `omitted` or `redacted`.
pub(crate) const REPLAY: HeaderName = HeaderName::from_static(header_names::REPLAY);

/// Encodes a response, within `limit` bytes of headers and body together.
fn encode(
    head: &ResponseHead,
    body: &RecordedBody,
    limit: usize,
    trace: Option<&TraceContext>,
) -> EncodedRecording {
    recording::encode_within(limit, head.status.as_u16(), &recorded_lines(head), body, trace)
}

/// The header lines to record: raw, and in the order in which the response holds them.
fn recorded_lines(head: &ResponseHead) -> Vec<(&[u8], &[u8])> {
    let lines = head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let connection = head.headers().get_all(header::CONNECTION).map(HeaderValue::as_bytes);
    recording::recorded_lines(lines, connection)
}

/// How much of a response is recorded, and how long its recording may take.
#[derive(Clone, Copy)]
pub(crate) struct RecordingLimits {
    /// Bytes of headers and body.
    pub(crate) bytes: usize,
    /// How long a stream may take to end.
    pub(crate) time: Duration,
}

/// A response and its recording.
pub(crate) struct Recorded {
    pub(crate) recording: EncodedRecording,
    /// The whole response.
    pub(crate) response: HttpResponse,
    /// Whether a limit was exceeded, so that only status and headers are recorded.
    pub(crate) exceeds_limit: bool,
}

/// Records a response.
///
/// A body within the limits is recorded. If the body is larger, if it streams for longer than the
/// limit, or if it consists of server-sent events, only status and headers are recorded. The
/// response is still sent whole: what was read of a stream is put back in front of it.
///
/// # Errors
/// Fails if the body fails within the limits, because there is no response to record then.
pub(crate) fn record(
    response: HttpResponse,
    limits: RecordingLimits,
    trace: Option<TraceContext>,
) -> impl Future<Output = Result<Recorded, Box<dyn StdError>>> {
    // Split outside of the future, which would otherwise hold both the response and its parts.
    let (head, body) = response.into_parts();
    async move {
        let is_without_body = head.extensions().contains::<WithoutBody>();
        let (recorded, rest) = match body.size() {
            _ if is_without_body => (RecordedBody::Omitted, Some(body)),
            BodySize::None => (RecordedBody::None, Some(body)),
            BodySize::Sized(size)
                if usize::try_from(size).is_ok_and(|size| size <= limits.bytes) =>
            {
                take(body, limits).await?
            }
            BodySize::Stream if !is_event_stream(head.head()) => take(body, limits).await?,
            BodySize::Sized(_) | BodySize::Stream => (RecordedBody::Omitted, Some(body)),
        };
        let recording = encode(head.head(), &recorded, limits.bytes, trace.as_ref());
        let exceeds_limit = matches!(recorded, RecordedBody::Omitted)
            && !is_without_body
            && !is_event_stream(head.head());
        let body = match (recorded, rest) {
            (_, Some(rest)) => rest,
            (RecordedBody::Whole(whole), None) => BoxBody::new(whole),
            (RecordedBody::None | RecordedBody::Omitted, None) => BoxBody::new(body::None::new()),
        };
        Ok(Recorded { recording, response: head.set_body(body), exceeds_limit })
    }
}

/// Server-sent events (`text/event-stream`, HTML Living Standard §9.2) usually have no end, and
/// clients wait for the first of them.
fn is_event_stream(head: &ResponseHead) -> bool {
    let content_type =
        head.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// What is recorded of a body, and the body to send unless that is what is recorded.
type TakenBody = (RecordedBody, Option<BoxBody>);

async fn take(body: BoxBody, limits: RecordingLimits) -> Result<TakenBody, Box<dyn StdError>> {
    match body.try_into_bytes() {
        Ok(bytes) => Ok((RecordedBody::Whole(bytes), None)),
        // Boxed: keeps the caller's future small for bodies that are in memory already.
        Err(body) => Box::pin(read(body, limits)).await,
    }
}

async fn read(mut body: BoxBody, limits: RecordingLimits) -> Result<TakenBody, Box<dyn StdError>> {
    let announced = body.size();
    let (mut chunks, mut length) = (Chunks::default(), 0usize);
    let mut time_limit = pin!(rt::time::sleep(limits.time));
    loop {
        // A stream that is always ready must not keep the thread.
        tokio::task::coop::consume_budget().await;
        let chunk = poll_fn(|cx| match time_limit.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut body).poll_next(cx).map(Some),
        });
        let Some(chunk) = chunk.await else { break };
        let Some(chunk) = chunk.transpose()? else {
            // A recording of a truncated body would look complete to every client that gets it.
            if let BodySize::Sized(size) = announced
                && u64::try_from(length) != Ok(size)
            {
                return Err("the length of the body differs from the announced length".into());
            }
            return Ok((RecordedBody::Whole(chunks.joined()), None));
        };
        length = length.saturating_add(chunk.len());
        chunks.push(chunk);
        if length > limits.bytes {
            break;
        }
    }
    chunks.join_small();
    Ok((RecordedBody::Omitted, Some(BoxBody::new(ResumedBody { chunks, body }))))
}

/// A stream, preceded by the chunks that were already read from it.
struct ResumedBody {
    chunks: Chunks,
    body: BoxBody,
}

impl MessageBody for ResumedBody {
    type Error = Box<dyn StdError>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        match self.chunks.pop_front() {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None => Pin::new(&mut self.body).poll_next(cx),
        }
    }
}

/// Makes a recording of a response, for [`Idempotency::resolve`](crate::Idempotency::resolve).
///
/// The recording has the headers that the guard would record: unchanged and in order, without those
/// that belong to one connection, one moment or one client, such as `Set-Cookie` and `Date`. The
/// whole body is read into memory and recorded, whatever its size and marks; the `response_limit`
/// and the `redact` of the builder do not apply.
///
/// # Errors
/// Fails if the body fails while it is read.
///
/// # Cancel safety
/// Safe: nothing is stored.
///
/// # Examples
/// ```
/// use actix_web::HttpResponse;
/// use idempotent_actix::{
///     Idempotency, RecordId, recording,
///     store::{Actor, Snapshot},
/// };
///
/// async fn charged(
///     idempotency: &Idempotency,
///     id: &RecordId,
///     seen: &Snapshot,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let response = HttpResponse::Created().body("the payment was made");
///     let recording = recording::from_response(response).await?;
///     let actor = Actor::new("ada", "the bank's books have the charge");
///     idempotency.resolve(id, seen, Some(&recording), &actor).await?;
///     Ok(())
/// }
/// # let _ = charged;
/// ```
pub async fn from_response(response: HttpResponse) -> Result<EncodedRecording, ResponseBodyError> {
    let (response, body) = response.into_parts();
    let body = match body.size() {
        BodySize::None => RecordedBody::None,
        BodySize::Sized(_) | BodySize::Stream => {
            RecordedBody::Whole(body::to_bytes(body).await.map_err(ResponseBodyError)?)
        }
    };
    let head = response.head();
    Ok(recording::encode(head.status.as_u16(), &recorded_lines(head), &body))
}

/// The error of [`from_response`] if the body of the response failed. Its source is the error of
/// the body.
#[derive(Debug)]
pub struct ResponseBodyError(Box<dyn StdError>);

impl fmt::Display for ResponseBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the response to record failed")
    }
}

impl StdError for ResponseBodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// Converts a recording to a response that is marked as a replay, and returns the trace of the
/// first run with it; returns `None` if the recording cannot be read, or is not that of a valid
/// HTTP response.
pub(crate) fn replay(
    recording: &EncodedRecording,
    (marker, value): &(HeaderName, HeaderValue),
) -> Option<(HttpResponse, Option<TraceContext>)> {
    let recording = Recording::decode(recording)
        .inspect_err(|error| tracing::error!(%error, "a recording is not that of a response"))
        .ok()?;
    let mut response = HttpResponse::new(StatusCode::from_u16(recording.status).ok()?);
    let headers = response.headers_mut();
    for (name, value) in recording.headers {
        let value = HeaderValue::from_maybe_shared(value).ok()?;
        headers.append(HeaderName::from_bytes(&name).ok()?, value);
    }
    headers.insert(marker.clone(), value.clone());
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if recording.redacted {
        response.headers_mut().insert(REPLAY, HeaderValue::from_static("redacted"));
    }
    let response = match recording.body {
        RecordedBody::None => response.set_body(BoxBody::new(body::None::new())),
        RecordedBody::Whole(bytes) => response.set_body(BoxBody::new(bytes)),
        RecordedBody::Omitted => {
            response.headers_mut().insert(REPLAY, HeaderValue::from_static("omitted"));
            response
        }
    };
    Some((response, recording.trace))
}

#[cfg(test)]
mod tests {
    use actix_web::web::Bytes;
    use futures_util::stream;

    use super::*;

    #[actix_web::test]
    async fn a_response_is_recorded_as_the_guard_would() {
        let mut response = HttpResponse::Created();
        response.insert_header(("location", "/p/1")).insert_header(("set-cookie", "a=b"));
        let recorded =
            async |response| Recording::decode(&from_response(response).await.unwrap()).unwrap();
        let recording = recorded(response.body("paid")).await;
        let location = (Bytes::from_static(b"location"), Bytes::from_static(b"/p/1"));
        assert_eq!(recording.status, 201);
        assert!(recording.headers.contains(&location));
        assert!(!recording.headers.iter().any(|(name, _)| name == "set-cookie"));
        assert_eq!(recording.body, RecordedBody::Whole(Bytes::from_static(b"paid")));
        let empty = recorded(HttpResponse::NoContent().finish()).await;
        assert_eq!((empty.status, empty.body), (204, RecordedBody::Whole(Bytes::new())));
    }

    #[actix_web::test]
    async fn a_streamed_body_is_read_whole_and_its_error_is_reported() {
        let streamed = |last: Result<Bytes, std::io::Error>| {
            let chunks = [Ok(Bytes::from_static(b"a")), last];
            from_response(HttpResponse::Ok().streaming(stream::iter(chunks)))
        };
        let recording = streamed(Ok(Bytes::from_static(b"b"))).await.unwrap();
        assert_eq!(
            Recording::decode(&recording).unwrap().body,
            RecordedBody::Whole(Bytes::from_static(b"ab"))
        );
        assert!(streamed(Err(std::io::Error::other("lost"))).await.is_err());
    }
}
