//! Responses with a secret that is shown once.

use actix_web::{HttpRequest, HttpResponse, Responder, body::BoxBody};
use idempotent_core::EncodedRecording;
use idempotent_http::recording::Recording;

/// The mark of a response whose body is not recorded, such as one with a secret that is shown once.
///
/// The first client gets the whole response. Its replays have the status and the recorded headers,
/// no body, and `Idempotency-Replay: omitted`. A handler adds it with [`with`](Self::with), or to
/// the extensions of the response. To keep a part of the body, or to remove a header, use
/// [`redact`](crate::IdempotencyBuilder::redact).
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use idempotent_actix::recording::WithoutBody;
///
/// async fn create_token() -> impl Responder {
///     WithoutBody.with(HttpResponse::Created().body("shown once"))
/// }
/// # let _ = create_token;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithoutBody;

impl WithoutBody {
    /// Marks a response.
    pub fn with<R>(self, response: R) -> impl Responder<Body = BoxBody> + use<R>
    where
        R: Responder<Body: 'static>,
    {
        Marked(response)
    }
}

/// A response whose body is not recorded.
struct Marked<R>(R);

impl<R> Responder for Marked<R>
where
    R: Responder<Body: 'static>,
{
    type Body = BoxBody;

    fn respond_to(self, request: &HttpRequest) -> HttpResponse {
        let mut response = self.0.respond_to(request).map_into_boxed_body();
        response.extensions_mut().insert(WithoutBody);
        response
    }
}

/// A function of the application that removes from a recording what must not be stored.
pub(crate) type Redact = dyn Fn(&HttpRequest, &mut Recording) + Send + Sync;

/// The recording without what this function removes. The status stays.
pub(crate) fn redacted(
    encoded: EncodedRecording,
    redact: &Redact,
    request: &HttpRequest,
) -> EncodedRecording {
    let Ok(whole) = Recording::decode(&encoded) else { return encoded };
    let mut recording = whole.clone();
    redact(request, &mut recording);
    if recording == whole {
        return encoded;
    }
    (recording.status, recording.redacted) = (whole.status, true);
    recording.encode()
}
