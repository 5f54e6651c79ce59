//! The signatures of two kinds of webhooks: Stripe's, and those of Standard Webhooks.

use std::time::{Duration, UNIX_EPOCH};

use actix_web::{HttpRequest, HttpResponse, ResponseError, http::StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How far the time of a signature may be from now. Both documents recommend five minutes. A
/// provider signs each delivery anew, so a redelivery is not too old.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Why a delivery is not genuine. The sender learns no more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is missing or malformed.
    #[error("the signature is missing or malformed")]
    Malformed,
    /// The signature was made too long ago, or in the future.
    #[error("the timestamp of the signature is more than 5 minutes from now")]
    Expired,
    /// None of the signatures is valid.
    #[error("the signature does not match")]
    Mismatch,
}

impl ResponseError for SignatureError {
    fn status_code(&self) -> StatusCode {
        StatusCode::UNAUTHORIZED
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::build(self.status_code()).body(self.to_string())
    }
}

/// Signs `TIMESTAMP.BODY` with Stripe's secret; returns the value of the header `Stripe-Signature`.
#[must_use]
pub fn sign_stripe(secret: &str, timestamp: u64, body: &[u8]) -> String {
    let signature = stripe_mac(secret, timestamp, body).finalize().into_bytes();
    format!("t={timestamp},v1={}", hex::encode(signature))
}

/// Signs `ID.TIMESTAMP.BODY` with a secret of Standard Webhooks; returns the value of the header
/// `webhook-signature`.
///
/// # Errors
/// Fails if the secret is not `whsec_` followed by Base64.
pub fn sign_standard(
    secret: &str,
    id: &str,
    timestamp: u64,
    body: &[u8],
) -> Result<String, SignatureError> {
    let signature = standard_mac(secret, id, timestamp, body)?.finalize().into_bytes();
    Ok(format!("v1,{}", BASE64_STANDARD.encode(signature)))
}

/// Verifies the header `Stripe-Signature: t=…,v1=…` (<https://docs.stripe.com/webhooks/signature>).
/// While a secret is being replaced, there are two signatures; those of other versions are ignored.
pub(crate) fn verify_stripe(
    secret: &str,
    request: &HttpRequest,
    body: &[u8],
    now: u64,
) -> Result<(), SignatureError> {
    let header = header(request, "stripe-signature")?;
    let pairs = || header.split(',').filter_map(|pair| pair.trim().split_once('='));
    let timestamp = pairs().find(|(name, _)| *name == "t").map(|(_, value)| value);
    let timestamp = recent(timestamp.ok_or(SignatureError::Malformed)?, now)?;
    let mac = stripe_mac(secret, timestamp, body);
    let signatures = pairs().filter(|(name, _)| *name == "v1");
    matches_any(&mac, signatures.filter_map(|(_, signature)| hex::decode(signature).ok()))
}

/// Verifies the headers `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,…`
/// (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).
pub(crate) fn verify_standard(
    secret: &str,
    request: &HttpRequest,
    body: &[u8],
    now: u64,
) -> Result<(), SignatureError> {
    let id = header(request, "webhook-id")?;
    let timestamp = recent(header(request, "webhook-timestamp")?, now)?;
    let mac = standard_mac(secret, id, timestamp, body)?;
    let signatures = header(request, "webhook-signature")?.split(' ');
    let signatures = signatures.filter_map(|signature| signature.strip_prefix("v1,"));
    matches_any(&mac, signatures.filter_map(|signature| BASE64_STANDARD.decode(signature).ok()))
}

/// The time of this machine in seconds since 1970, as providers count it.
#[must_use]
pub fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

/// The only value of a header.
fn header<'a>(request: &'a HttpRequest, name: &str) -> Result<&'a str, SignatureError> {
    let mut values = request.headers().get_all(name);
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| SignatureError::Malformed),
        (None | Some(_), _) => Err(SignatureError::Malformed),
    }
}

/// The timestamp, if it is close to now. Otherwise a delivery that was intercepted could be sent
/// again at any time.
fn recent(timestamp: &str, now: u64) -> Result<u64, SignatureError> {
    let timestamp: u64 = timestamp.parse().map_err(|_| SignatureError::Malformed)?;
    if timestamp.abs_diff(now) > TOLERANCE.as_secs() {
        return Err(SignatureError::Expired);
    }
    Ok(timestamp)
}

/// Whether one of the signatures is right. The comparison takes the same time for all that are
/// wrong.
fn matches_any(
    mac: &Hmac<Sha256>,
    mut signatures: impl Iterator<Item = Vec<u8>>,
) -> Result<(), SignatureError> {
    let found = signatures.any(|signature| mac.clone().verify_slice(&signature).is_ok());
    if found { Ok(()) } else { Err(SignatureError::Mismatch) }
}

/// The secret counts as it is shown, with its prefix `whsec_`.
fn stripe_mac(secret: &str, timestamp: u64, body: &[u8]) -> Hmac<Sha256> {
    keyed(secret.as_bytes()).chain_update(format!("{timestamp}.")).chain_update(body)
}

/// The secret is the Base64 text after `whsec_`.
fn standard_mac(
    secret: &str,
    id: &str,
    timestamp: u64,
    body: &[u8],
) -> Result<Hmac<Sha256>, SignatureError> {
    let secret = secret.strip_prefix("whsec_").ok_or(SignatureError::Malformed)?;
    let secret = BASE64_STANDARD.decode(secret).map_err(|_| SignatureError::Malformed)?;
    Ok(keyed(&secret).chain_update(format!("{id}.{timestamp}.")).chain_update(body))
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104 §2)")]
fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("a key of any length")
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const AT: u64 = 1_614_265_330;

    fn standard(signature: &str, timestamp: &str, now: u64) -> Result<(), SignatureError> {
        let request = TestRequest::default()
            .insert_header(("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"))
            .insert_header(("webhook-timestamp", timestamp))
            .insert_header(("webhook-signature", signature));
        verify_standard(SECRET, &request.to_http_request(), br#"{"test": 2432232314}"#, now)
    }

    fn stripe(signature: &str, now: u64) -> Result<(), SignatureError> {
        let request = TestRequest::default().insert_header(("Stripe-Signature", signature));
        verify_stripe("whsec_test", &request.to_http_request(), b"{}", now)
    }

    /// The example of the providers' documents.
    #[test]
    fn the_published_signature_is_valid() {
        let right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(standard(right, "1614265330", AT), Ok(()));
        assert_eq!(standard(&format!("v1a,x v1,AAAA {right}"), "1614265330", AT), Ok(()));
        assert_eq!(standard(right, "1614265331", AT), Err(SignatureError::Mismatch));
        assert_eq!(standard("v1,AAAA", "1614265330", AT), Err(SignatureError::Mismatch));
        assert_eq!(standard(&right[3..], "1614265330", AT), Err(SignatureError::Mismatch));
        assert_eq!(standard(right, "soon", AT), Err(SignatureError::Malformed));
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let made = sign_standard(SECRET, id, AT, br#"{"test": 2432232314}"#);
        assert_eq!(made, Ok(right.to_owned()));
        assert_eq!(sign_standard("test", id, AT, b""), Err(SignatureError::Malformed));
    }

    #[test]
    fn each_of_several_signatures_of_stripe_may_be_the_right_one() {
        // printf '1614265330.{}' | openssl dgst -sha256 -hmac whsec_test
        let right = "5790023bd77209313f2e32e36caf5921bdd2fac398095f83dc2d2ecd5f696f50";
        assert_eq!(sign_stripe("whsec_test", AT, b"{}"), format!("t={AT},v1={right}"));
        assert_eq!(stripe(&format!("t={AT},v1=00,v1={right},v0=x"), AT), Ok(()));
        assert_eq!(stripe(&format!("v1={right}, t={AT}"), AT), Ok(()));
        assert_eq!(stripe(&format!("t={AT},v0={right}"), AT), Err(SignatureError::Mismatch));
        assert_eq!(stripe(&format!("t={},v1={right}", AT + 1), AT), Err(SignatureError::Mismatch));
        assert_eq!(stripe(&format!("v1={right}"), AT), Err(SignatureError::Malformed));
        assert_eq!(stripe("", AT), Err(SignatureError::Malformed));
    }

    #[test]
    fn a_signature_is_valid_for_five_minutes() {
        let signed = sign_stripe("whsec_test", AT, b"{}");
        for (now, valid) in
            [(AT + 300, true), (AT + 301, false), (AT - 300, true), (AT - 301, false)]
        {
            let expected = if valid { Ok(()) } else { Err(SignatureError::Expired) };
            assert_eq!(stripe(&signed, now), expected, "{now}");
        }
    }
}
