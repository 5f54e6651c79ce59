//! Extractors of events whose signature is valid.

use std::{future::Future, marker::PhantomData, pin::Pin};

use actix_web::{
    Error, FromRequest, HttpRequest,
    dev::Payload,
    error::{ErrorBadRequest, ErrorInternalServerError},
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
    fn change(event: &Value) -> Option<Change>;
}

/// What an event says about a payment. Amounts are in cents.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Paid { payment: String, amount: i64 },
    Refunded { payment: String, amount: i64 },
}

/// An event that its provider has signed. As all extractors, it runs before the key is claimed, and
/// before each replay: without a valid signature the request gets 401, and nothing is stored.
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
            Ok(Self { change: P::change(&event), provider: PhantomData })
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

    fn change(event: &Value) -> Option<Change> {
        let text = |pointer| event.pointer(pointer)?.as_str().map(str::to_owned);
        let amount = |pointer| event.pointer(pointer)?.as_i64();
        match event.get("type")?.as_str()? {
            "payment_intent.succeeded" => Some(Change::Paid {
                payment: text("/data/object/id")?,
                amount: amount("/data/object/amount")?,
            }),
            "charge.refunded" => Some(Change::Refunded {
                payment: text("/data/object/payment_intent")?,
                amount: amount("/data/object/amount_refunded")?,
            }),
            _ => None,
        }
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

    fn change(event: &Value) -> Option<Change> {
        let payment = event.pointer("/data/invoice")?.as_str()?.to_owned();
        let amount = event.pointer("/data/amount")?.as_i64()?;
        match event.get("type")?.as_str()? {
            "invoice.paid" => Some(Change::Paid { payment, amount }),
            "invoice.refunded" => Some(Change::Refunded { payment, amount }),
            _ => None,
        }
    }
}
