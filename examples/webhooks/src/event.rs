//! Extractors of events whose signature is valid.

use std::{future::Future, marker::PhantomData, pin::Pin};

use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse, ResponseError,
    dev::Payload,
    error::{ErrorBadRequest, ErrorInternalServerError},
    http::StatusCode,
    web::{Bytes, Data},
};
use serde_json::Value;

use crate::{
    receiver::Secrets,
    signature::{SignatureError, now, verify_standard, verify_stripe},
};

/// Who sends an event, and how it says what has happened.
pub(crate) trait Provider: 'static {
    fn verify(
        secrets: &Secrets,
        request: &HttpRequest,
        body: &[u8],
        now: u64,
    ) -> Result<(), SignatureError>;

    /// `None` for an event that concerns no payment, or that this receiver does not know.
    ///
    /// Fails if the event concerns a payment but cannot be read: it must not count as received.
    fn change(event: &Value) -> Result<Option<Change>, Unreadable>;
}

/// What an event says about a payment. Amounts are in cents.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Paid {
        payment: String,
        amount: i64,
    },
    /// A refund of this amount.
    Refunded {
        payment: String,
        amount: i64,
    },
    /// The amount of all refunds of the payment so far.
    RefundedInTotal {
        payment: String,
        total: i64,
    },
}

/// A member of an event about a payment that this receiver cannot read.
#[derive(Debug, thiserror::Error)]
#[error("the event was not booked: {place} is not {expected}")]
pub(crate) struct Unreadable {
    place: &'static str,
    expected: &'static str,
}

/// 422, from the extractor: the key is not claimed and nothing is recorded. The provider delivers
/// the event again, and shows the failure to its user.
impl ResponseError for Unreadable {
    fn status_code(&self) -> StatusCode {
        StatusCode::UNPROCESSABLE_ENTITY
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::build(self.status_code()).body(self.to_string())
    }
}

/// An event that its provider has signed. As all extractors, it runs before the key is claimed, and
/// before each replay: without a valid signature the request gets 401, and nothing is stored. The
/// same holds for 422, if an event about a payment cannot be read.
pub(crate) struct Verified<P> {
    pub(crate) change: Option<Change>,
    provider: PhantomData<P>,
}

impl<P: Provider> FromRequest for Verified<P> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, body) = (request.clone(), Bytes::from_request(request, payload));
        Box::pin(async move {
            let body = body.await?;
            let secrets = request.app_data::<Data<Secrets>>();
            let secrets = secrets.ok_or_else(|| ErrorInternalServerError("no secrets"))?;
            P::verify(secrets, &request, &body, now())?;
            let event = serde_json::from_slice(&body).map_err(ErrorBadRequest)?;
            Ok(Self { change: P::change(&event)?, provider: PhantomData })
        })
    }
}

/// Stripe's events, such as `payment_intent.succeeded`.
pub(crate) struct Stripe;

impl Provider for Stripe {
    fn verify(
        secrets: &Secrets,
        request: &HttpRequest,
        body: &[u8],
        now: u64,
    ) -> Result<(), SignatureError> {
        verify_stripe(&secrets.stripe, request, body, now)
    }

    fn change(event: &Value) -> Result<Option<Change>, Unreadable> {
        Ok(match text(event, "/type")?.as_str() {
            "payment_intent.succeeded" => Some(Change::Paid {
                payment: text(event, "/data/object/id")?,
                amount: cents(event, "/data/object/amount")?,
            }),
            // `amount_refunded` counts all refunds of the charge: 300, then 500 after a second
            // refund of 200.
            "charge.refunded" => Some(Change::RefundedInTotal {
                payment: text(event, "/data/object/payment_intent")?,
                total: cents(event, "/data/object/amount_refunded")?,
            }),
            _ => None,
        })
    }
}

/// A provider that follows Standard Webhooks, with events such as `invoice.paid`.
pub(crate) struct Standard;

impl Provider for Standard {
    fn verify(
        secrets: &Secrets,
        request: &HttpRequest,
        body: &[u8],
        now: u64,
    ) -> Result<(), SignatureError> {
        verify_standard(&secrets.standard, request, body, now)
    }

    fn change(event: &Value) -> Result<Option<Change>, Unreadable> {
        let payment = || text(event, "/data/invoice");
        let amount = || cents(event, "/data/amount");
        Ok(match text(event, "/type")?.as_str() {
            "invoice.paid" => Some(Change::Paid { payment: payment()?, amount: amount()? }),
            "invoice.refunded" => Some(Change::Refunded { payment: payment()?, amount: amount()? }),
            _ => None,
        })
    }
}

fn text(event: &Value, place: &'static str) -> Result<String, Unreadable> {
    let text = event.pointer(place).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or(Unreadable { place, expected: "a text" })
}

fn cents(event: &Value, place: &'static str) -> Result<i64, Unreadable> {
    let amount = event.pointer(place).and_then(Value::as_i64).filter(|amount| *amount > 0);
    amount.ok_or(Unreadable { place, expected: "a whole number of cents above 0" })
}
